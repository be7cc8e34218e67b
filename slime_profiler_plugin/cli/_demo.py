"""The verb `demo`."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from ._common import FAILED, fail, own_name, print_report, tell

if TYPE_CHECKING:
    from slime_profiler_plugin.demo import DemoResult


@click.command()
@click.option("--out", default="runs", show_default=True, help="Folder of runs to write into.")
@click.option(
    "--rollouts",
    default=3,
    show_default=True,
    metavar="N",
    type=click.IntRange(min=1),
    help="Turns of the loop.",
)
@click.option(
    "--trainers",
    default=2,
    show_default=True,
    metavar="N",
    type=click.IntRange(min=1),
    help="Ranks of the actor.",
)
@click.option(
    "--engines", default=2, show_default=True, metavar="N", type=click.IntRange(min=1), help="Engines."
)
@click.option("--config", "name", default="timeline", show_default=True, help="A shipped one, or a path.")
@click.option(
    "--transport",
    default="nccl",
    show_default=True,
    type=click.Choice(["nccl", "ipc", "disk", "disk_delta", "all"]),
    help="How weights reach the engines; all: a run with each.",
)
@click.option("--async", "overlap", is_flag=True, help="Generate the next rollout while one is trained on.")
@click.option(
    "--update-weights-interval",
    default=1,
    show_default=True,
    metavar="K",
    type=click.IntRange(min=1),
    help="Send the weights after every K rollouts.",
)
@click.option("--critic", is_flag=True, help="Train a critic too.")
@click.option(
    "--restart-engine",
    metavar="I",
    type=click.IntRange(min=0),
    help="In mid-run engine I dies and comes back.",
)
@click.option(
    "--restart-rank",
    metavar="I",
    type=click.IntRange(min=0),
    help="In mid-run trainer rank I dies and comes back.",
)
def demo(out: str, name: str, transport: str, **settings: Any) -> None:
    """Run a small real RL loop, record it and merge it."""
    from slime_profiler_plugin.config import ConfigError
    from slime_profiler_plugin.demo import TRANSPORTS, DemoError, Settings, run_transports

    chosen = [each for each in TRANSPORTS if transport in (each, "all")]
    code = 0
    try:
        for result in run_transports(Settings(**settings), chosen, out, name, click.echo):
            _print_demo(result)
            code = max(code, result.merged.exit_code() if result.merged is not None else 0)
    except (DemoError, ConfigError, ValueError) as error:
        fail(str(error), FAILED)
    except OSError as error:
        fail(tell(error), FAILED)
    sys.exit(code)


def _print_demo(result: DemoResult) -> None:
    from slime_profiler_plugin._show import print_phases

    if result.table is not None:
        print_phases(result.table)
    if result.merged is not None:
        print_report(result.merged)
    memory = "" if result.peak_bytes is None else f" and {result.peak_bytes / 1e9:.1f} GB of memory at most"
    click.echo(f"The demo took {result.wall_s:.0f} s{memory}.")
    if result.run_folder is not None:
        click.echo(f"\nOpen it: {shlex.join([own_name(), 'open', str(result.run_folder)])}")
