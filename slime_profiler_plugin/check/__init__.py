"""A linter for anyone's trace: rules with stable codes, and files mended by them."""

from ._check import CheckReport, check_paths
from ._format import format_report
from ._rules import RULES, Finding, Mender, Rule, Severity

__all__ = ["RULES", "CheckReport", "Finding", "Mender", "Rule", "Severity", "check_paths", "format_report"]
