"""Questions over records; answers are tables."""

from ._listing import (
    AttemptSummary,
    Listing,
    MergedFile,
    ProcessSummary,
    RoleSummary,
    RolloutSpan,
    RunSummary,
    Sizes,
    list_runs,
)
from ._listing_text import (
    TextTable,
    format_bytes,
    listing_lines,
    roles_table,
    run_lines,
    runs_table,
)
from ._phase_table import Cell, Column, PhaseTable, Row, phase_table

__all__ = [
    "AttemptSummary",
    "Cell",
    "Column",
    "Listing",
    "MergedFile",
    "PhaseTable",
    "ProcessSummary",
    "RoleSummary",
    "RolloutSpan",
    "Row",
    "RunSummary",
    "Sizes",
    "TextTable",
    "format_bytes",
    "list_runs",
    "listing_lines",
    "phase_table",
    "roles_table",
    "run_lines",
    "runs_table",
]
