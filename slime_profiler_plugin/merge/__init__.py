"""Merging: every source of a run on one clock, as one Chrome trace per rollout."""

from ._format import format_report
from ._ledger import ConservationError, Ledger
from ._merge import merge_run
from ._report import DamageReport, MergeReport, OutputReport, ProcessReport, RanksReport
from ._rollouts import MergeError, MergeUsageError, RolloutChoice, parse_choice
from ._selection import rollout_order

__all__ = [
    "ConservationError",
    "DamageReport",
    "Ledger",
    "MergeError",
    "MergeReport",
    "MergeUsageError",
    "OutputReport",
    "ProcessReport",
    "RanksReport",
    "RolloutChoice",
    "format_report",
    "merge_run",
    "parse_choice",
    "rollout_order",
]
