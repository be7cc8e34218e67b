"""Text and tables on a terminal, for the command line.

What a run says of itself (ids, names of hosts, roles and files) may hold anything, and a terminal
obeys what it is sent: every line goes through `print_line`.
"""

from __future__ import annotations

import io
import os
import re
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.table import Table

    from slime_profiler_plugin.analyze import PhaseTable, TextTable

#: Wider than any table.
_UNLIMITED = 10_000
#: Control characters, line ends, and what changes the direction of writing.
_OBEYED: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escape_controls(text: str) -> str:
    r"""`text` as one line, with what a terminal would obey written out.

    >>> print(escape_controls("a\x1b[31m\n\x9b b"))
    a\x1b[31m\n\x9b b
    """
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def print_line(text: str, *, bold: bool = False, err: bool = False) -> None:
    """Print one line, to standard error with `err`; control characters are written out."""
    import click

    click.secho(escape_controls(text), bold=bold or None, err=err)


def accept_all_text() -> None:
    """What the encoding of standard output or error cannot say is written out, and is no error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def give_up_stdout() -> None:
    """Nothing more can be printed: what is still buffered is not tried again at exit."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # no file, in a test
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def print_cells(table: TextTable) -> None:
    """Print a table of texts, as `print_line` does; nothing is wrapped or cut."""
    from rich.cells import cell_len

    rows = [tuple(map(escape_controls, row)) for row in table.rows]
    widths = [max(map(cell_len, column)) for column in zip(table.columns, *rows, strict=True)]

    def lay_out(row: tuple[str, ...]) -> str:
        padded = []
        for name, width, cell in zip(table.columns, widths, row, strict=True):
            space = " " * (width - cell_len(cell))
            padded.append(space + cell if name in table.numbers else cell + space)
        return "  ".join(padded).rstrip()

    print_line(lay_out(table.columns), bold=True)
    for row, below in zip(rows, table.below, strict=True):
        print_line(lay_out(row))
        for line in below:
            print_line(f"    {line}")


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
