"""The command line: verbs that call the library and print. No logic of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from slime_profiler_plugin import __version__

if TYPE_CHECKING:
    from slime_profiler_plugin.merge import MergeReport

#: Nothing was written, or nothing could be read.
_FAILED: Final = 1
_USAGE: Final = 2


class _Group(click.Group):
    """Verbs in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it with one
        return list(self.commands)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="slime-profiler")
def main() -> None:
    """One timeline of an RL post-training run."""


@main.command()
@click.argument("run_dir", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--rollout",
    default="latest",
    metavar="R|A:B|all|initial",
    help="A number, a half-open range, or all: one file each. Default: the latest complete one.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="A file (.json, .json.gz), or a folder for one file per rollout. Default: merged/ in the run folder.",
)
@click.option("--allow-partial", is_flag=True, help="Exit 0 where it would be 3.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def merge(
    run_dir: tuple[Path, ...], rollout: str, output: Path | None, allow_partial: bool, as_json: bool
) -> None:
    """Merge a run into one timeline per rollout.

    Several RUN_DIRs are copies of one run's folder, each with a part of it. For a folder of runs, the
    runs are listed.

    Exit code: 0 clean; 1 nothing written; 2 usage; 3 written, but a source was truncated,
    refused or missing.
    """
    from slime_profiler_plugin.merge import (
        ConservationError,
        MergeError,
        MergeUsageError,
        merge_run,
        parse_choice,
    )
    from slime_profiler_plugin.read import FolderOfRunsError, ReadError

    try:
        report = merge_run(run_dir, parse_choice(rollout), output)
    except FolderOfRunsError as found:
        _list_runs(found.folder, found.runs, as_json)
        sys.exit(_FAILED)
    except MergeUsageError as error:
        _fail(str(error), _USAGE)
    except (ReadError, MergeError, ConservationError) as error:
        _fail(str(error), _FAILED)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}", _FAILED)
    if as_json:
        _print_json(report.to_builtins())
    else:
        _print_report(report)
    sys.exit(report.exit_code(allow_partial=allow_partial))


@main.group(cls=_Group)
def config() -> None:
    """The configurations that are shipped."""


@config.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the names as JSON.")
def config_list(as_json: bool) -> None:
    """Names of the shipped configurations."""
    from slime_profiler_plugin.config import list_configs

    names = list_configs()
    if as_json:
        _print_json(list(names))
    else:
        for name in names:
            click.echo(name)


@config.command("show")
@click.argument("name")
def config_show(name: str) -> None:
    """The text of a shipped configuration, comments included."""
    from slime_profiler_plugin.config import ConfigError, read_config_text

    try:
        click.echo(read_config_text(name), nl=False)
    except ConfigError as error:
        _fail(str(error), _FAILED)


@main.command()
@click.option(
    "--out", default="runs", show_default=True, type=click.Path(path_type=Path), help="Where the run goes."
)
@click.option("--rollouts", default=None, type=click.IntRange(min=1), help="How many rollouts.")
@click.option("--trainers", default=None, type=click.IntRange(min=1), help="How many trainer ranks.")
@click.option("--engines", default=None, type=click.IntRange(min=1), help="How many engines.")
@click.option("--config", "config_name", default=None, help="A shipped configuration or a path.")
def demo(
    out: Path, rollouts: int | None, trainers: int | None, engines: int | None, config_name: str | None
) -> None:
    """Run a small real RL loop, record it and merge it."""
    from slime_profiler_plugin.demo import run_demo

    given = {"rollouts": rollouts, "trainers": trainers, "engines": engines, "config": config_name}
    sys.exit(run_demo(out=out, **{name: value for name, value in given.items() if value is not None}))


def _fail(message: str, code: int) -> Any:
    click.echo(f"slime-profiler: {message}", err=True)
    sys.exit(code)


def _print_json(value: object) -> None:
    import json

    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _list_runs(folder: Path, runs: list[Path], as_json: bool) -> None:
    if as_json:
        _print_json({"folder": str(folder), "runs": [str(run) for run in runs]})
        return
    click.echo(f"{folder} holds these runs; merge one of them:", err=True)
    for run in runs:
        click.echo(str(run))


def _print_report(report: MergeReport) -> None:
    from slime_profiler_plugin.merge import format_report

    for line in format_report(report):
        click.echo(line)


if __name__ == "__main__":
    main()
