"""What verbs share: exit codes, and how they say what went wrong."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

from slime_profiler_plugin._show import print_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slime_profiler_plugin.merge import MergeReport
    from slime_profiler_plugin.read import FolderOfRunsError

#: Nothing was written, or nothing could be read.
FAILED: Final = 1
USAGE: Final = 2
#: It was done, but something is not as it should be.
FINDINGS: Final = 3
NAME: Final = "slime-profiler"


def fail(message: str, code: int, below: Iterable[str] = ()) -> NoReturn:
    """Ends the program with one line, and those `below` it."""
    print_line(f"slime-profiler: {message}", err=True)
    for line in below:
        print_line(line, err=True)
    sys.exit(code)


def tell(error: OSError) -> str:
    """The file and the reason."""
    told = error.strerror or str(error)
    return told if error.filename is None else f"{error.filename}: {told}"


def own_name() -> str:
    """How this program can be called from the same shell."""
    called = Path(sys.argv[0])
    return str(called) if called.name == NAME and shutil.which(NAME) is None else NAME


def print_json(value: object) -> None:
    """On standard output."""
    click.echo(json.dumps(value, indent=2))


def list_runs_of(found: FolderOfRunsError, verb: str, as_json: bool = False) -> None:
    """Says which runs there are, where one was expected."""
    damage = list(map(str, found.damage))
    if as_json:
        print_json({"folder": str(found.folder), "runs": list(map(str, found.runs)), "damage": damage})
        return
    print_line(f"{found.folder} holds these runs; {verb} one of them:", err=True)
    for run in found.runs:
        print_line(str(run))
    for told in damage:
        print_line(f"cannot be read: {told}", err=True)


def print_report(report: MergeReport) -> None:
    """What a merge did."""
    from slime_profiler_plugin.merge import format_report

    for line in format_report(report):
        print_line(line)
