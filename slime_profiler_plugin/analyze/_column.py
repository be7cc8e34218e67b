"""What a column of a table holds: its unit and how it was measured."""

from __future__ import annotations

from typing import Any, NamedTuple


class TableColumn(NamedTuple):
    """A column: `unit` is ``""`` for names and counts, `how` says what the value is and where it is from."""

    name: str
    unit: str
    how: str


def read_columns(text: str) -> tuple[TableColumn, ...]:
    """A column for each line, its parts between bars; indented lines go on where the one before ended.

    >>> read_columns('''
    ... rank      |    | of the process
    ... total_ms  | ms | host clock:
    ...   sum of its durations
    ... ''')[1]
    TableColumn(name='total_ms', unit='ms', how='host clock: sum of its durations')
    """
    lines: list[str] = []
    for line in text.strip().splitlines():
        if line.startswith(" "):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return tuple(TableColumn(*(part.strip() for part in line.split("|", 2))) for line in lines)


class Table(NamedTuple):
    """An answer: columns and rows, whose values are numbers, texts, truth values or ``None``."""

    name: str
    columns: tuple[TableColumn, ...]
    rows: list[tuple[Any, ...]]

    def records(self) -> list[dict[str, Any]]:
        """Each row by name of column."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]
