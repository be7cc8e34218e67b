"""Tables as text, JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from ._column import Table
from ._listing_text import TextTable

FORMATS: Final = ("table", "json", "csv", "markdown")
#: What begins like this, a spreadsheet takes for a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
#: What Markdown obeys inside a cell, and how it is said there.
_ESCAPED: Final = str.maketrans(
    {**{letter: f"\\{letter}" for letter in "\\|`*[]"}, "&": "&amp;", "<": "&lt;", "\n": " ", "\r": " "}
)
#: What a terminal may obey and JSON does not write out by itself.
_OBEYED: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
#: Smaller than that, three digits after the point say nothing.
_SMALL: Final = 0.0005


def text_table(table: Table, *, every_column: bool = False) -> TextTable:
    """With numbers to the right; without columns in which nothing stands, except with `every_column`."""
    places = range(len(table.columns))
    kept = [i for i in places if every_column or any(_says(row[i]) for row in table.rows)] or [0]
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
    told = json.dumps(_plain({**about, "views": views}), indent=1, ensure_ascii=False)
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", told)


def table_csv(table: Table) -> str:
    """With a header; NULL is empty; text that a spreadsheet would take for a formula gets a ``'``."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_tame(column.name) for column in table.columns])
    writer.writerows([["" if v is None else _tame(v) for v in row] for row in table.rows])
    return out.getvalue()


def table_markdown(table: Table, *, every_column: bool = False) -> str:
    """As a pipe table, with the columns of `text_table`; text cannot leave its cell."""
    shown = text_table(table, every_column=every_column)
    lines = [
        _pipe([_escape(name) for name in shown.columns]),
        _pipe(["--:" if name in shown.numbers else "---" for name in shown.columns]),
        *(_pipe([_escape(cell) for cell in row]) for row in shown.rows),
    ]
    return "\n".join(lines) + "\n"


def _pipe(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(cell: str) -> str:
    return cell.translate(_ESCAPED)


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
        # Without a sign for a zero.
        return f"{value or 0.0:.3f}" if value == 0 or _SMALL <= abs(value) < 1e9 else f"{value:.3g}"
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
