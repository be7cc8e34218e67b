"""What a column of a table holds: its unit and how it was measured."""

from __future__ import annotations

from typing import Any, NamedTuple


class TableColumn(NamedTuple):
    """A column: `unit` is ``""`` for names and counts, `how` says what the value is and where it is from."""

    name: str
    unit: str
    how: str


class Table(NamedTuple):
    """An answer: columns and rows, whose values are numbers, texts, truth values or ``None``."""

    name: str
    columns: tuple[TableColumn, ...]
    rows: list[tuple[Any, ...]]

    def records(self) -> list[dict[str, Any]]:
        """Each row by name of column."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]
