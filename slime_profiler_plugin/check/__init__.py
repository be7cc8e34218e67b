"""A linter for anyone's trace: rules with stable codes, and files mended by them."""

from ._check import CheckReport, check_paths
from ._fix import FixReport, FixUsageError, MendedFile, fix_files
from ._format import format_fixes, format_report
from ._rules import RULES, Finding, Mender, Rule, Severity

__all__ = [
    "RULES",
    "CheckReport",
    "Finding",
    "FixReport",
    "FixUsageError",
    "MendedFile",
    "Mender",
    "Rule",
    "Severity",
    "check_paths",
    "fix_files",
    "format_fixes",
    "format_report",
]
