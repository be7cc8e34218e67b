"""The verb `check`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from slime_profiler_plugin._show import print_line

from ._common import FAILED, USAGE, fail, print_json, tell


@click.command()
@click.argument("paths", metavar="FILE|DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Exit 3 for warnings and infos too.")
@click.option("--fix", is_flag=True, help="Write a mended copy of each file to OUT.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="With --fix: a file (.json, .json.gz) for one FILE, else a folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def check(paths: tuple[Path, ...], strict: bool, fix: bool, output: Path | None, as_json: bool) -> None:
    """Check traces for what viewers lose, misdraw or refuse.

    Any Chrome trace, of torch.profiler, SGLang, Ray or others, compressed or not; of a DIR, all traces below
    it. The files are checked one by one, then together. docs/check.md explains every code.

    Exit code: 0 no error was found (--strict: nothing at all); 1 nothing could be read; 2 usage;
    3 something was found. With --fix: 0 all of that is mended; 1 nothing was written; 3 something is left.
    """
    from slime_profiler_plugin.check import (
        FixUsageError,
        check_paths,
        fix_files,
        format_fixes,
        format_report,
    )
    from slime_profiler_plugin.merge import ConservationError, WorkerError

    if fix != (output is not None):
        fail("--fix and -o OUT belong together", USAGE)
    report = check_paths(paths)
    fixed = None
    try:
        if output is not None and report.files:
            fixed = fix_files(report, paths, output)
    except FixUsageError as error:
        fail(str(error), USAGE)
    except (ConservationError, WorkerError) as error:
        fail(str(error), FAILED)
    except OSError as error:
        fail(tell(error), FAILED)
    if as_json:
        told = report.to_builtins()
        print_json(told if fixed is None else {**told, "fixed": fixed.to_builtins()})
    else:
        for line in [*format_report(report), *(() if fixed is None else format_fixes(fixed))]:
            print_line(line)
    code = report.exit_code(strict=strict)
    sys.exit(code if fixed is None else fixed.exit_code(report, strict=strict))
