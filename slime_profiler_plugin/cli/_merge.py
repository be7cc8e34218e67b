"""The verb `merge`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from ._common import FAILED, USAGE, fail, list_runs_of, own_name, print_json, print_report, tell


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option(
    "--rollout",
    metavar="R|A:B|all|initial|latest",
    help="A number, a half-open range (3:5 is 3 and 4), or all (one file each). Default: latest complete.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="A file (.json, .json.gz), or a folder for one per rollout. Default: merged/ in the run's folder, "
    "merged.trace.json.gz here without a run.",
)
@click.option("--attempt", type=click.IntRange(min=0), metavar="N", help="Only this attempt. Default: all.")
@click.option("--ranks", metavar="R,A-B", help="Only processes of these ranks: 0,3-5.")
@click.option("--roles", metavar="ROLE,...", help="Only processes of these roles: actor,engine.")
@click.option("--category", metavar="CAT,...", help="Only events of these categories: kernel,phase.")
@click.option("--min-duration", metavar="D", help="Only slices that lasted as long: 20us, 1.5ms.")
@click.option("--window", metavar="START:END", help="Only what touches these seconds of the whole: 1.5:3.")
@click.option(
    "--budget-mb",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="About how large, uncompressed; the shortest kernels go first. Default 0: everything is written.",
)
@click.option("--archive", is_flag=True, help="Also a ZIP of the sources as they are, for Perfetto >= 58.2.")
@click.option(
    "--jobs", type=click.IntRange(min=0), default=0, metavar="N", help="Processes. Default: all cores."
)
@click.option("--allow-partial", is_flag=True, help="Exit 0 where it would be 3.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def merge(
    paths: tuple[Path, ...],
    rollout: str | None,
    output: Path | None,
    attempt: int | None,
    allow_partial: bool,
    as_json: bool,
    **choices: Any,
) -> None:
    """Merge a run into one timeline per rollout, or anyone's traces into one.

    PATHs are the folder of a run, or several copies of it, each with a part; beside it, or without one,
    traces of torch.profiler, SGLang, Ray, Nsight Systems and others, and folders of them. For a folder of
    runs, the runs are listed.

    Exit code: 0 clean; 1 nothing written; 2 usage; 3 written, but a source was truncated, refused or missing.
    """
    from slime_profiler_plugin._progress import show_progress
    from slime_profiler_plugin.merge import (
        ConservationError,
        MergeError,
        MergeUsageError,
        WorkerError,
        merge_paths,
        parse_choice,
        parse_options,
    )
    from slime_profiler_plugin.read import FolderOfRunsError, ReadError

    try:
        with show_progress() as progress:
            rollouts = None if rollout is None else parse_choice(rollout)
            options = parse_options(progress=progress, **choices)
            report = merge_paths(paths, rollouts, output, attempt, options)
    except FolderOfRunsError as found:
        list_runs_of(found, "merge", as_json)
        sys.exit(FAILED)
    except MergeUsageError as error:
        fail(str(error), USAGE)
    except (ReadError, MergeError, ConservationError, WorkerError) as error:
        fail(str(error), FAILED)
    except OSError as error:
        fail(tell(error), FAILED)
    if as_json:
        print_json(report.to_builtins())
    else:
        print_report(report)
        if report.run_id is None:
            click.echo(f"Open it: {shlex.join([own_name(), 'open', report.outputs[0].path])}")
    sys.exit(report.exit_code(allow_partial=allow_partial))
