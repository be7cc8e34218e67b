"""The run id: said, or derived from what all processes of the job share, or minted."""

from __future__ import annotations

import datetime as dt
from typing import Final, NamedTuple

from ._errors import IdentityError
from ._surroundings import LAUNCH_VARIABLE, LAUNCHED_VARIABLE, RUN_ID_VARIABLE, Surroundings

_LONGEST: Final = 200  # a folder name may have 255 bytes, and file names are built on it


class RunId(NamedTuple):
    """A run id and where it came from: ``environment``, ``given``, ``ray``, ``slurm``,
    ``torchelastic``, ``launch`` or ``minted``."""

    text: str
    origin: str


def find_run_id(
    here: Surroundings, *, given: str | None, role: str | None, world_size: int | None, unix_ns: int
) -> RunId:
    """The id of the run this process belongs to.

    Every process of a job gets the same answer. Raises `IdentityError` where that cannot be
    promised, naming the variable that would settle it.
    """
    said = here.text(RUN_ID_VARIABLE)
    if said is not None:
        return RunId(_checked(said, RUN_ID_VARIABLE), "environment")
    if given is not None:
        return RunId(_checked(given, "run_id"), "given")
    return _derived(here) or _launched(here) or _minted(here, role, world_size, unix_ns)


def mint_run_id(unix_ns: int, random: str) -> str:
    """An id that nothing else has.

    >>> mint_run_id(1_800_000_000_000_000_000, "0123456789abcdef")
    'run-20270115T080000Z-0123456789abcdef'
    """
    seconds = unix_ns // 1_000_000_000
    at = dt.datetime.fromtimestamp(seconds, dt.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return f"run-{at}-{random}"


def _checked(run_id: str, name: str) -> str:
    if not run_id.strip():
        raise IdentityError(f"{name} is empty")
    if not run_id.isprintable():
        raise IdentityError(f"{name}={run_id!r} holds a control character")
    if len(run_id) > _LONGEST:
        raise IdentityError(f"{name} has {len(run_id)} characters; {_LONGEST} are allowed")
    return run_id


def _derived(here: Surroundings) -> RunId | None:
    ray = here.ray_job()
    if ray is not None:
        return RunId(f"ray-{ray.session}-{ray.job_id}", "ray")
    slurm = here.slurm()
    if slurm is not None:
        return RunId(f"slurm-{slurm.job_id}", "slurm")
    elastic = here.elastic()
    if elastic is None:
        return None
    if elastic.id is not None:
        return RunId(_checked(elastic.id, "TORCHELASTIC_RUN_ID"), "torchelastic")
    if elastic.several_nodes:
        raise IdentityError(
            "torchrun was started on several nodes without an id that they share: "
            f"set {RUN_ID_VARIABLE} to one value on all of them, or give torchrun --rdzv-id"
        )
    address, port = elastic.master
    agent = elastic.agent
    # The pid tells apart two agents that started within one clock tick.
    started = f"{agent.boot_id[:8]}-{agent.start_ticks}-{agent.pid}"
    return RunId(f"torchrun-{address}-{port}-{started}", "torchelastic")


def _launched(here: Surroundings) -> RunId | None:
    run_id = here.launched()
    return None if run_id is None else RunId(_checked(run_id, LAUNCHED_VARIABLE), "launch")


def _minted(here: Surroundings, role: str | None, world_size: int | None, unix_ns: int) -> RunId:
    if role != "driver" and not here.is_alone(world_size):
        raise IdentityError(
            "this process is one of several and nothing that they share names their run: "
            f"set {RUN_ID_VARIABLE} to one value for all of them, and {LAUNCH_VARIABLE} to one that is new "
            "at each start of the run"
        )
    return RunId(mint_run_id(unix_ns, here.mint()), "minted")
