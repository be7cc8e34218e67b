"""Merging: a run on one clock, as one Chrome trace per rollout, or traces of anyone's as one."""

from slime_profiler_plugin.read import MERGE_KEY

from ._endings import ENDED_EARLY, ENDINGS, NO_END, find_endings, find_replacements
from ._exact_times import parse_times
from ._foreign import merge_discovered, merge_traces
from ._format import format_report
from ._ledger import ConservationError, Ledger
from ._merge import merge_run
from ._options import BROWSER_BYTES, MergeOptions, parse_options
from ._paths import merge_paths
from ._report import DamageReport, InputReport, MergeReport, OutputReport, ProcessReport, RanksReport
from ._rollouts import MergeError, MergeUsageError, RolloutChoice, parse_choice
from ._selection import rollout_order
from ._tracks import name_processes, presentation_order
from ._words import bound_items, format_ending, format_missing, format_of, format_range
from ._workers import WorkerError

__all__ = [
    "BROWSER_BYTES",
    "ENDED_EARLY",
    "ENDINGS",
    "MERGE_KEY",
    "NO_END",
    "ConservationError",
    "DamageReport",
    "InputReport",
    "Ledger",
    "MergeError",
    "MergeOptions",
    "MergeReport",
    "MergeUsageError",
    "OutputReport",
    "ProcessReport",
    "RanksReport",
    "RolloutChoice",
    "WorkerError",
    "bound_items",
    "find_endings",
    "find_replacements",
    "format_ending",
    "format_missing",
    "format_of",
    "format_range",
    "format_report",
    "merge_discovered",
    "merge_paths",
    "merge_run",
    "merge_traces",
    "name_processes",
    "parse_choice",
    "parse_options",
    "parse_times",
    "presentation_order",
    "rollout_order",
]
