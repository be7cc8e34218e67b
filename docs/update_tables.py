"""Writes the tables of `tables.md` anew from `slime_profiler_plugin.analyze`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from slime_profiler_plugin.analyze import TABLES, VIEW_COLUMNS, TableColumn

PAGE: Final = Path(__file__).with_name("tables.md")
_BEGIN: Final = "<!-- columns: python docs/update_tables.py -->\n"
_END: Final = "<!-- end of columns -->\n"


def updated(page: str) -> str:
    """The text of the page with the columns as they should be."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return before + _BEGIN + "".join(_sections()) + _END + after


def _sections() -> Iterator[str]:
    for kind, tables in (("View", VIEW_COLUMNS), ("Table", TABLES)):
        for name, columns in tables.items():
            yield f"\n### {kind} `{name}`\n\n"
            yield "| column | unit | what it is, and how it was measured |\n|---|---|---|\n"
            yield from map(_row, columns)


def _row(column: TableColumn) -> str:
    return f"| `{column.name}` | {column.unit} | {column.how.replace('|', '&#124;')} |\n"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
