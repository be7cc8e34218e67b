"""The verb `ls`."""

from __future__ import annotations

from pathlib import Path

import click

from slime_profiler_plugin._show import print_line

from ._common import FAILED, fail, print_json, tell


@click.command("ls")
@click.argument(
    "folder", metavar="[DIR]", default="runs", envvar="SLIME_PROFILER_OUT", type=click.Path(path_type=Path)
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, sizes in bytes.")
def list_(folder: Path, as_json: bool) -> None:
    """List the runs in a folder, the newest last, or show one run.

    DIR is a folder of runs or the folder of one. Default: SLIME_PROFILER_OUT, else runs. Only the beginning
    and the end of what each process wrote is read.

    Exit code: 0; 1 there is no run.
    """
    from slime_profiler_plugin._show import print_cells
    from slime_profiler_plugin.analyze import list_runs, listing_lines, roles_table, run_lines, runs_table
    from slime_profiler_plugin.read import ReadError

    try:
        listing = list_runs(folder)
    except ReadError as error:
        fail(str(error), FAILED)
    except OSError as error:
        fail(tell(error), FAILED)
    if as_json:
        print_json(listing.to_builtins())
    elif listing.is_run:
        for line in run_lines(listing.runs[0]):
            print_line(line)
        print_cells(roles_table(listing.runs[0]))
    else:
        print_cells(runs_table(listing))
        for line in listing_lines(listing):
            print_line(line)
