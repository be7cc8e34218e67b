"""This process: its place in the run, its incarnation, its clock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from slime_profiler_plugin.layout import RunPaths, file_safe

from ._attempt import RunFile, create_run, find_launch, join_attempt
from ._errors import IdentityError, OutError
from ._place import find_place
from ._run import find_run_id
from ._surroundings import LAUNCH_VARIABLE, RUN_ID_VARIABLE, Surroundings


class ProcessIdentity(msgspec.Struct, kw_only=True, frozen=True):
    """Who this process is. The fields are those of `schema.Process`.

    `start_ns` (CLOCK_MONOTONIC) and `start_unix_ns` (since the epoch) are one clock pair,
    read within `start_error_ns` of each other.
    """

    run_id: str
    attempt: int
    host: str
    pid: int
    start_ns: int
    start_unix_ns: int
    start_error_ns: int
    clock_domain: str
    role: str | None
    rank: int | None
    ranks: dict[str, int]
    world_size: int | None
    engine: dict[str, int]
    #: The token that all processes of this attempt share.
    launch: str
    #: Of ``role rank world_size``, what the environment said and nobody told.
    by_environment: frozenset[str] = frozenset()
    #: What the user should be warned of: a start of the run that may fall apart.
    warning: str | None = None

    @property
    def incarnation(self) -> str:
        """``<pid>-<start_unix_ns>``: the stem of this process's record file."""
        return f"{self.pid}-{self.start_unix_ns}"

    def next_incarnation(self) -> ProcessIdentity:
        """The same a nanosecond later, for when another process has this record file.

        That takes two processes with one pid and host name, so two containers, that start
        in the same nanosecond.
        """
        return msgspec.structs.replace(self, start_unix_ns=self.start_unix_ns + 1)

    def shared_environ(self) -> dict[str, str]:
        """Environment by which processes that this one starts join its run and attempt.

        A driver that minted its id hands it on so: to its children through its own
        environment, to a Ray cluster through ``runtime_env["env_vars"]``.
        """
        return {RUN_ID_VARIABLE: self.run_id, LAUNCH_VARIABLE: self.launch}


def resolve(
    environ: Mapping[str, str],
    given: Mapping[str, Any],
    out: Path | str,
    *,
    settings: Mapping[str, Any] | None = None,
    here: Surroundings | None = None,
) -> ProcessIdentity:
    """Find the run, join or make the attempt, and say who this process is.

    `given`: ``run_id role rank ranks world_size engine``, each optional; without a role,
    ``SLIME_PROFILER_ROLE`` with ``SLIME_PROFILER_RANK`` and ``SLIME_PROFILER_WORLD_SIZE``. ``RANK`` and
    ``WORLD_SIZE`` may be another role's: they count where no rank is given, and no role or
    ``actor`` or ``critic``; a given run id goes after
    ``SLIME_PROFILER_RUN_ID``. `settings` are the profiler's own and go to ``run.json``.
    Creates the run folder under `out`, ``run.json`` and ``attempt-NNN.json`` where they are
    missing. `here` is this process unless a test says otherwise.

    Raises `IdentityError` for a bad value, or where the processes of the job would not agree
    on the run; `OutError` where the folder cannot be written.
    """
    here = here or Surroundings(environ=environ)
    told = dict(given)
    run_id = told.pop("run_id", None)
    if run_id is not None and not isinstance(run_id, str):
        raise IdentityError(f"run_id: {run_id!r} is not allowed; allowed: text")
    place, by_environment = find_place(here, told)
    pair = here.read_pair()
    run = find_run_id(here, given=run_id, role=place.role, world_size=place.world_size, unix_ns=pair.unix_ns)
    host = file_safe(here.hostname)
    paths = RunPaths(out, run.text)
    unique = f"{host}-{here.pid}-{pair.unix_ns}-{here.mint()}"
    run_file = RunFile(
        run_id=run.text, origin=run.origin, created_unix_ns=pair.unix_ns, settings=dict(settings or {})
    )
    shared = find_launch(here)
    launch = shared or f"fresh:{here.mint()}"
    try:
        create_run(paths, run_file, unique)
        attempt = join_attempt(paths, launch, host=host, pid=here.pid, unix_ns=pair.unix_ns, unique=unique)
    except OSError as error:
        reason = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        raise OutError(f"no run can be written to the folder {Path(out).absolute()}: {reason}") from error
    warning = None
    if shared is None and run.origin != "minted" and place.role != "driver":
        warning = None if here.is_alone(place.world_size) else _tell_lonely(run.text, attempt)
    return ProcessIdentity(
        run_id=run.text,
        attempt=attempt,
        host=host,
        pid=here.pid,
        start_ns=pair.mono_ns,
        start_unix_ns=pair.unix_ns,
        start_error_ns=pair.error_ns,
        clock_domain=here.read_clock_domain(),
        role=place.role,
        rank=place.rank,
        ranks=place.ranks,
        world_size=place.world_size,
        engine=place.engine,
        launch=launch,
        by_environment=by_environment,
        warning=warning,
    )


def _tell_lonely(run_id: str, attempt: int) -> str:
    return (
        f"this process is one of several of run {run_id!r}, and nothing that they share says which start of "
        f"the run this is: it counts as a start of its own, attempt {attempt}, and is merged apart from the "
        f"others. Set {LAUNCH_VARIABLE} for all of them, to a value that is new at each start"
    )
