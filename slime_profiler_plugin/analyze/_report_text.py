"""Tables as text, JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from ._column import Table
from ._listing_text import TextTable

FORMATS: Final = ("table", "json", "csv", "markdown")
#: What begins like this, a spreadsheet takes for a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def text_table(table: Table) -> TextTable:
    """With numbers to the right; columns in which nothing stands are left out."""
    kept = [i for i, _ in enumerate(table.columns) if any(_says(row[i]) for row in table.rows)] or [0]
    numbers = [i for i in kept if all(row[i] is None or _is_number(row[i]) for row in table.rows)]
    return TextTable(
        tuple(table.columns[i].name for i in kept),
        [tuple(_cell(row[i]) for i in kept) for row in table.rows],
        frozenset(table.columns[i].name for i in numbers),
        [[] for _ in table.rows],
    )


def _says(value: Any) -> bool:
    return value is not None and value is not False and value != 0


def tables_json(tables: Sequence[Table], **about: Any) -> str:
    """``{…about, "views": {name: {"columns": [{name, unit, how}], "rows": [{…}]}}}``."""
    views = {
        table.name: {"columns": [c._asdict() for c in table.columns], "rows": table.records()}
        for table in tables
    }
    return json.dumps(_plain({**about, "views": views}), indent=1, ensure_ascii=False)


def table_csv(table: Table) -> str:
    """With a header; NULL is empty; text that a spreadsheet would take for a formula gets a ``'``."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_tame(column.name) for column in table.columns])
    writer.writerows([["" if v is None else _tame(v) for v in row] for row in table.rows])
    return out.getvalue()


def table_markdown(table: Table) -> str:
    """As a pipe table; text cannot leave its cell."""
    shown = text_table(table)
    lines = [
        _pipe(shown.columns),
        _pipe(["--:" if name in shown.numbers else "---" for name in shown.columns]),
        *(_pipe([_escape(cell) for cell in row]) for row in shown.rows),
    ]
    return "\n".join(lines) + "\n"


def _pipe(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(cell: str) -> str:
    for old, new in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("\n", " "), ("\r", " "), ("`", "\\`")):
        cell = cell.replace(old, new)
    return cell


def _tame(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 1e9 else f"{value:.3g}"
    return str(value)


def _plain(value: Any) -> Any:
    """What JSON can say: times, decimals and the like as text or numbers, no NaN."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
