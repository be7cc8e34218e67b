"""This process: its place in the run, its incarnation, its clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from slime_profiler_plugin.layout import RunPaths, file_safe

from ._attempt import RunFile, create_run, find_launch, join_attempt
from ._errors import IdentityError
from ._run import find_run_id
from ._surroundings import LAUNCH_VARIABLE, RUN_ID_VARIABLE, Surroundings

_ROLE: Final = re.compile(r"[A-Za-z0-9_]+")  # what a trace file's name can carry


class _Given(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What the caller of `start` may say."""

    run_id: str | None = None
    role: str | None = None
    rank: int | None = None
    ranks: dict[str, int] = {}
    world_size: int | None = None
    engine: dict[str, int] = {}


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

    `given`: ``run_id role rank ranks world_size engine``, each optional. A given rank goes
    before ``RANK`` and ``WORLD_SIZE``, which may be another role's; a given run id goes after
    ``SLIME_PROFILER_RUN_ID``. `settings` are the profiler's own and go to ``run.json``.
    Creates the run folder under `out`, ``run.json`` and ``attempt-NNN.json`` where they are
    missing. `here` is this process unless a test says otherwise.

    Raises `IdentityError` for a bad value, or where the processes of the job would not agree
    on the run; `OSError` where the folder cannot be written.
    """
    here = here or Surroundings(environ=environ)
    place = _place(here, given)
    pair = here.read_pair()
    run = find_run_id(
        here, given=place.run_id, role=place.role, world_size=place.world_size, unix_ns=pair.unix_ns
    )
    host = file_safe(here.hostname)
    paths = RunPaths(out, run.text)
    unique = f"{host}-{here.pid}-{pair.unix_ns}-{here.mint()}"
    run_file = RunFile(
        run_id=run.text, origin=run.origin, created_unix_ns=pair.unix_ns, settings=dict(settings or {})
    )
    create_run(paths, run_file, unique)
    launch = find_launch(here)
    attempt = join_attempt(paths, launch, host=host, pid=here.pid, unix_ns=pair.unix_ns, unique=unique)
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
    )


def _place(here: Surroundings, given: Mapping[str, Any]) -> _Given:
    try:
        place = msgspec.convert(dict(given), _Given)
    except msgspec.ValidationError as error:
        raise IdentityError(f"identity: {error}") from error
    if place.rank is None:
        place.rank = here.integer("RANK")
        if place.world_size is None:
            place.world_size = here.integer("WORLD_SIZE")
    if place.role is not None and not _ROLE.fullmatch(place.role):
        raise IdentityError(f"role {place.role!r} may hold letters, digits and _ only")
    if place.world_size is not None and place.world_size < 1:
        raise IdentityError(f"world_size {place.world_size} is less than 1")
    if place.rank is not None and place.rank < 0:
        raise IdentityError(f"rank {place.rank} is negative")
    if place.rank is not None and place.world_size is not None and place.rank >= place.world_size:
        raise IdentityError(f"rank {place.rank} is not below world_size {place.world_size}")
    return place
