"""Tables on a terminal, for the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from slime_profiler_plugin.analyze import PhaseTable, TextTable

#: Wider than any table.
_UNLIMITED = 10_000


def print_cells(table: TextTable) -> None:
    """Print a table of texts, which are printed as they are; nothing is wrapped or cut."""
    import click
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(table.columns, *table.rows, strict=True)]

    def lay_out(row: tuple[str, ...]) -> str:
        padded = []
        for name, width, cell in zip(table.columns, widths, row, strict=True):
            space = " " * (width - cell_len(cell))
            padded.append(space + cell if name in table.numbers else cell + space)
        return "  ".join(padded).rstrip()

    click.secho(lay_out(table.columns), bold=True)
    for row, below in zip(table.rows, table.below, strict=True):
        click.echo(lay_out(row))
        for line in below:
            click.echo(f"    {line}")


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
