"""Tables on a terminal, for the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from slime_profiler_plugin.analyze import PhaseTable, TextTable

#: Wider than any table.
_UNLIMITED = 10_000


def print_cells(table: TextTable) -> None:
    """Print a table of texts, which are printed as they are."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None)
    for column in table.columns:
        shown.add_column(column, justify="right" if column in table.numbers else "left", overflow="fold")
    for row in table.rows:
        shown.add_row(*map(Text, row))
    print_table(shown)


def print_phases(table: PhaseTable) -> None:
    """Print how long each phase took in all, and how often it ran, by role and rank."""
    from rich.table import Table

    name = table.rollout if isinstance(table.rollout, str) else f"rollout {table.rollout}"
    shown = Table(title=f"{name}: milliseconds (times it ran)", title_justify="left", box=None)
    shown.add_column("phase", no_wrap=True)
    for column in table.columns:
        rank = "" if column.rank is None else f" {column.rank}"
        shown.add_column(f"{column.role or 'unknown'}{rank}", justify="right", overflow="fold")
    for row in table.rows:
        cells = ["" if c is None else f"{c.total_ns / 1e6:.1f} ({c.count})" for c in row.cells]
        shown.add_row("  " * row.depth + row.phase, *cells)
    print_table(shown)


def print_table(table: Table) -> None:
    """Print a table: as wide as a terminal is, and in a file or a pipe as wide as the table is."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        options = console.options.update(width=_UNLIMITED)
        console.width = max(console.width, console.measure(table, options=options).maximum)
    console.print(table)
