"""The verbs `report` and `sql`: tables about a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slime_profiler_plugin._show import print_line

from ._common import FAILED, FINDINGS, USAGE, fail, list_runs_of

if TYPE_CHECKING:
    from slime_profiler_plugin.analyze import RunTables, Table


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--rollout",
    default="all",
    show_default=True,
    metavar="R|A:B|all|initial|latest",
    help="A number, or a half-open range (3:5 is 3 and 4).",
)
@click.option(
    "--view",
    "views",
    multiple=True,
    type=click.Choice(["rollout", "sync", "bucket", "ranks"]),
    help="May be given several times. Default: rollout, sync and ranks.",
)
@click.option(
    "--format",
    "form",
    default="table",
    show_default=True,
    type=click.Choice(["table", "json", "csv", "markdown"]),
    help="csv takes one view.",
)
@click.option(
    "--link-gb-s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="G",
    help="The slowest link that weights cross, 10^9 bytes per second. Default: the best that was measured.",
)
@click.option(
    "--tensorboard",
    "log_folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also bring scalars of each finished rollout up to date, in an event file below DIR.",
)
def report(
    run: Path,
    rollout: str,
    views: tuple[str, ...],
    form: str,
    link_gb_s: float | None,
    log_folder: Path | None,
) -> None:
    """Tables about a run: what its rollouts, weight syncs and ranks spent their time on.

    Exit code: 0; 1 no data; 2 usage; 3 lines that could not be read.
    """
    from slime_profiler_plugin.analyze import DEFAULT_VIEWS, RunTables, write_scalars

    chosen = views or DEFAULT_VIEWS
    if form == "csv" and len(chosen) != 1:
        fail("--format csv takes one --view", USAGE)
    with _tables_errors("report"), RunTables(run) as tables:
        rollouts = tables.choose(rollout)
        answers = [tables.view(name, rollouts, link_gb_s) for name in chosen]
        _print_tables(tables, answers, form)
        if log_folder is not None:
            print_line(str(write_scalars(run, tables, log_folder)), err=True)
        sys.exit(FINDINGS if tables.unreadable() else 0)


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("query", metavar="QUERY")
@click.option(
    "--format",
    "form",
    default="table",
    show_default=True,
    type=click.Choice(["table", "json", "csv", "markdown"]),
)
def sql(run: Path, query: str, form: str) -> None:
    """Ask the tables of a run a question of your own, in DuckDB's SQL.

    The tables are processes, phases, marks, drops, damage and rank_phases (docs/tables.md). Read only; no
    file can be reached from it.

    Exit code: 0; 1 no data; 2 a query that is wrong or not allowed; 3 lines that could not be read.
    """
    from slime_profiler_plugin.analyze import RunTables

    with _tables_errors("sql"), RunTables(run) as tables:
        # What a query asks for is shown, also where it is always 0.
        _print_tables(tables, [tables.sql(query)], form, every_column=True)
        sys.exit(FINDINGS if tables.unreadable() else 0)


@contextmanager
def _tables_errors(verb: str) -> Iterator[None]:
    """What keeps a run's tables from being made or asked, as messages and exit codes."""
    from slime_profiler_plugin.analyze import (
        EventFileError,
        NoDataError,
        TablesError,
        TablesUnavailableError,
    )
    from slime_profiler_plugin.merge import MergeUsageError
    from slime_profiler_plugin.read import FolderOfRunsError, ReadError

    try:
        yield
    except FolderOfRunsError as found:
        list_runs_of(found, verb)
        sys.exit(FAILED)
    except TablesError as error:
        # The engine repeats the query, and marks the place in the line below.
        first, *below = str(error).rstrip().split("\n")
        fail(first, USAGE, below)
    except MergeUsageError as error:
        fail(str(error), USAGE)
    except (ReadError, NoDataError, TablesUnavailableError, EventFileError) as error:
        fail(str(error), FAILED)


def _print_tables(tables: RunTables, answers: list[Table], form: str, *, every_column: bool = False) -> None:
    from slime_profiler_plugin._show import print_cells
    from slime_profiler_plugin.analyze import table_csv, table_markdown, tables_json, text_table

    unreadable = tables.unreadable()
    print_line(str(tables.cache), err=True)
    for each in unreadable:
        line = "" if each["line"] is None else f":{each['line']}"
        print_line(f"cannot be read: {each['path']}{line}: {each['kind']}: {each['reason']}", err=True)
    if form == "json":
        click.echo(tables_json(answers, unreadable=unreadable))
    for answer in answers:
        if form == "csv":
            click.echo(table_csv(answer), nl=False)
        elif form == "markdown":
            lines = (
                table_markdown(answer, every_column=every_column).split("\n")
                if answer.rows
                else ["no rows", ""]
            )
            for line in (f"## {answer.name}", "", *lines):
                print_line(line)
        elif form == "table":
            print_line(answer.name, bold=True)
            if answer.rows:
                print_cells(text_table(answer, every_column=every_column))
            else:
                print_line("no rows")
            click.echo()
