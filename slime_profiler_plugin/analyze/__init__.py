"""Questions over records; answers are tables.

`RunTables` needs DuckDB (the extra ``analyze``); nothing else here does.
"""

from ._cache import CacheState, cache_folder
from ._column import Table, TableColumn
from ._engine import TablesError, TablesUnavailableError
from ._event_file import EventFileError
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
from ._report import DEFAULT_VIEWS, VIEW_COLUMNS, VIEWS, NoDataError, RunTables
from ._report_text import FORMATS, table_csv, table_markdown, tables_json, text_table
from ._scalars import ScalarsWritten, write_scalars
from ._tables import TABLES

__all__ = [
    "DEFAULT_VIEWS",
    "FORMATS",
    "TABLES",
    "VIEWS",
    "VIEW_COLUMNS",
    "AttemptSummary",
    "CacheState",
    "Cell",
    "Column",
    "EventFileError",
    "Listing",
    "MergedFile",
    "NoDataError",
    "PhaseTable",
    "ProcessSummary",
    "RoleSummary",
    "RolloutSpan",
    "Row",
    "RunSummary",
    "RunTables",
    "ScalarsWritten",
    "Sizes",
    "Table",
    "TableColumn",
    "TablesError",
    "TablesUnavailableError",
    "TextTable",
    "cache_folder",
    "format_bytes",
    "list_runs",
    "listing_lines",
    "phase_table",
    "roles_table",
    "run_lines",
    "runs_table",
    "table_csv",
    "table_markdown",
    "tables_json",
    "text_table",
    "write_scalars",
]
