"""The attempt: one start of a run, numbered by whoever creates its file first."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from slime_profiler_plugin.layout import ATTEMPT_FILE, RunPaths

from ._errors import IdentityError
from ._files import create_whole, read_whole
from ._surroundings import LAUNCH_VARIABLE, Surroundings


class RunFile(msgspec.Struct, kw_only=True):
    """``run.json``: what the run is, from whoever came first. Never the environment."""

    run_id: str
    #: Where the id came from: ``environment given ray slurm torchelastic launch minted``.
    origin: str
    created_unix_ns: int
    #: The profiler's settings of that process.
    settings: dict[str, Any] = {}


class AttemptFile(msgspec.Struct, kw_only=True):
    """``attempt-NNN.json``: one start of the run. `launch` is equal in all its processes."""

    attempt: int
    launch: str
    created_unix_ns: int
    #: The process that came first.
    host: str
    pid: int


_File = TypeVar("_File", RunFile, AttemptFile)


def read_run(path: Path) -> RunFile:
    """``run.json``. Raises `IdentityError` where it is not one."""
    return _decode(path, RunFile)


def read_attempt(path: Path) -> AttemptFile:
    """An ``attempt-NNN.json``. Raises `IdentityError` where it is not one."""
    return _decode(path, AttemptFile)


def find_launch(here: Surroundings) -> str | None:
    """The token that all processes of this start of the run share, and no others.

    ``None`` where nothing is shared. With a fresh one the attempt is this process's alone,
    unless it is handed on (`ProcessIdentity.shared_environ`).
    """
    said = here.text(LAUNCH_VARIABLE)
    if said is not None:
        return said
    ray = here.ray_job()
    if ray is not None:
        return f"ray:{ray.session}:{ray.job_id}"
    elastic, slurm = here.elastic(), here.slurm()
    if elastic is not None and not elastic.several_nodes:
        agent = elastic.agent
        return f"torchelastic:{elastic.id}:{agent.boot_id}:{agent.pid}:{agent.start_ticks}"
    if elastic is not None:
        # Each node has an agent of its own. A batch job that is requeued comes back with the
        # same id and master, so what SLURM says of it belongs to the token.
        requeue = f":slurm:{slurm.job_id}:{slurm.restart_count}" if slurm else ""
        return f"torchelastic:{elastic.id or ':'.join(elastic.master)}{requeue}"
    if slurm is not None:
        return f"slurm:{slurm.job_id}:{slurm.step_id}:{slurm.restart_count}"
    launched = here.launched()
    return None if launched is None else f"launch:{launched}"


def create_run(paths: RunPaths, run: RunFile, unique: str) -> None:
    """Write ``run.json`` unless it is there.

    Raises `IdentityError` when it is there for another run, whose id spells the same folder.
    """
    if create_whole(paths.run_file, _encode(run), unique):
        return
    there = read_run(paths.run_file)
    if there.run_id != run.run_id:
        raise IdentityError(
            f"{paths.run_file} belongs to run {there.run_id!r}, and {run.run_id!r} spells the same folder"
        )


def join_attempt(paths: RunPaths, launch: str, *, host: str, pid: int, unix_ns: int, unique: str) -> int:
    """The number of the attempt whose token is `launch`; makes the next one if there is none.

    Safe against any number of processes that start at once: a number belongs to whoever
    links its file, and whoever loses it looks at the winner's token before the next number.
    A directory listing may be stale (NFS), so it only says where to begin.
    """
    numbers = _listed(paths)
    for number in numbers:
        if read_attempt(paths.attempt_file(number)).launch == launch:
            return number
    number = numbers[-1] + 1 if numbers else 0
    while True:
        path = paths.attempt_file(number)
        mine = AttemptFile(attempt=number, launch=launch, created_unix_ns=unix_ns, host=host, pid=pid)
        if create_whole(path, _encode(mine), unique) or read_attempt(path).launch == launch:
            return number
        number += 1


def _listed(paths: RunPaths) -> list[int]:
    matches = (ATTEMPT_FILE.fullmatch(entry.name) for entry in paths.root.iterdir())
    return sorted(int(match[1]) for match in matches if match)


def _encode(content: RunFile | AttemptFile) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def _decode(path: Path, kind: type[_File]) -> _File:
    try:
        return msgspec.json.decode(read_whole(path), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise IdentityError(f"{path}: {error}") from error
