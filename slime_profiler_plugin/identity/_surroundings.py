"""What a process can see of the job it belongs to: environment, /proc, loaded frameworks.

Nothing is imported for it: Ray and torch are asked only where the process has loaded them.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from slime_profiler_plugin.clock import ClockPair, read_clock_domain, read_pair

from ._errors import IdentityError

RUN_ID_VARIABLE: Final = "SLIME_PROFILER_RUN_ID"
LAUNCH_VARIABLE: Final = "SLIME_PROFILER_LAUNCH"
#: The id that ``slime_profiler_plugin.launch`` mints for the program it starts, and for that one's children.
LAUNCHED_VARIABLE: Final = "SLIME_PROFILER_LAUNCHED"
#: Who a process is that nobody tells; its children inherit it. A rank counts only beside a role.
ROLE_VARIABLE: Final = "SLIME_PROFILER_ROLE"
RANK_VARIABLE: Final = "SLIME_PROFILER_RANK"
WORLD_SIZE_VARIABLE: Final = "SLIME_PROFILER_WORLD_SIZE"

#: What torchrun calls a job that was given no id.
_NO_ID: Final = "none"
#: How several launchers say how many processes they started.
_SIZE_VARIABLES: Final = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
#: Equal in a rank and in every process between it and its agent, different in the agent.
_RANK_MARKS: Final = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "MASTER_PORT", "RANK")
_START_TIME_FIELD: Final = 22  # proc_pid_stat(5): ticks after boot


class RayJob(NamedTuple):
    """The Ray job this process is connected to."""

    session: str
    job_id: str


class Agent(NamedTuple):
    """The torchrun process that started this rank. `start_ticks` counts from boot."""

    pid: int
    start_ticks: int | None
    boot_id: str


class Elastic(NamedTuple):
    """A torchrun job. `id` is ``None`` where none was given."""

    id: str | None
    master: tuple[str, str]
    several_nodes: bool
    agent: Agent


class Slurm(NamedTuple):
    """A SLURM job step."""

    job_id: str
    step_id: str
    restart_count: str


@dataclass(frozen=True)
class Surroundings:
    """Everything the identity of a process is made from; a test gives its own."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    pid: int = field(default_factory=os.getpid)
    hostname: str = field(default_factory=socket.gethostname)
    proc: Path = Path("/proc")
    modules: Mapping[str, Any] = field(default_factory=lambda: sys.modules)
    read_pair: Callable[[], ClockPair] = read_pair
    read_clock_domain: Callable[[], str] = read_clock_domain
    mint: Callable[[], str] = lambda: secrets.token_hex(8)
    parent_pid: int = field(default_factory=os.getppid)

    def text(self, name: str) -> str | None:
        """An environment variable; ``None`` also where it is empty."""
        return self.environ.get(name) or None

    def integer(self, name: str) -> int | None:
        """An environment variable that holds a whole number. Raises `IdentityError` if not."""
        value = self.text(name)
        if value is None:
            return None
        if not value.strip().isdecimal():
            raise IdentityError(f"{name}={value!r} is not a whole number")
        return int(value)

    def ray_job(self) -> RayJob | None:
        """The Ray job of this driver or worker, when Ray is loaded and connected.

        Only the connected process knows it: a worker's environment names no session, and a
        worker that was started ahead of its job has a nil job id there.
        """
        ray = self.modules.get("ray")
        connected = getattr(ray, "is_initialized", None)
        if ray is None or connected is None or not connected():
            return None
        context = ray.get_runtime_context()
        read_session = getattr(context, "get_session_name", None)  # newer Rays
        try:
            session = read_session() if read_session else context.worker.node.session_name
        except AttributeError:  # a Ray client: its server is the driver, and no node is here
            return None
        return RayJob(str(session), str(context.get_job_id()))

    def elastic(self) -> Elastic | None:
        """The torchrun job that started this process or one of its ancestors."""
        run_id = self.text("TORCHELASTIC_RUN_ID")
        if run_id is None:
            return None
        nodes = self.integer("GROUP_WORLD_SIZE")
        local, world = self.integer("LOCAL_WORLD_SIZE"), self.integer("WORLD_SIZE")
        fewer_here = local is not None and world is not None and local < world
        return Elastic(
            None if run_id == _NO_ID else run_id,
            (self.text("MASTER_ADDR") or "", self.text("MASTER_PORT") or ""),
            (nodes is not None and nodes > 1) or fewer_here,
            self._agent(),
        )

    def launched(self) -> str | None:
        """The id that our launcher minted, in what it started.

        Not in a Ray worker, which may have it from the driver: Ray's own names are the job's there, and a
        worker that is not connected yet must not have another.
        """
        return None if self.text("RAY_RAYLET_PID") is not None else self.text(LAUNCHED_VARIABLE)

    def slurm(self) -> Slurm | None:
        """The SLURM job step this process runs in."""
        job_id = self.text("SLURM_JOB_ID")
        if job_id is None:
            return None
        return Slurm(job_id, self.text("SLURM_STEP_ID") or "", self.text("SLURM_RESTART_COUNT") or "0")

    def is_alone(self, given_world_size: int | None) -> bool:
        """Whether no other process can be part of this job, as far as anyone says."""
        sizes = [given_world_size, self._torch_world_size(), *map(self.integer, _SIZE_VARIABLES)]
        in_ray = self.text("RAY_RAYLET_PID") is not None or self.ray_job() is not None
        return not in_ray and all(size is None or size <= 1 for size in sizes)

    def _torch_world_size(self) -> int | None:
        distributed = self.modules.get("torch.distributed")
        joined = getattr(distributed, "is_initialized", None)
        if distributed is None or joined is None or not joined():
            return None
        return int(distributed.get_world_size())

    def _agent(self) -> Agent:
        """The nearest ancestor that is no part of this rank.

        That is the parent, but for a launcher script around the rank (``torchrun
        --no-python``) or a worker process that the rank started.
        """
        marks = [self.environ.get(name) for name in _RANK_MARKS]
        pid = self.parent_pid
        while pid > 1 and [self._environ_of(pid).get(name) for name in _RANK_MARKS] == marks:
            parent = self._stat_of(pid, 4)
            if parent is None:
                break
            pid = parent
        try:
            boot_id = (self.proc / "sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            boot_id = ""
        return Agent(pid, self._stat_of(pid, _START_TIME_FIELD), boot_id)

    def _environ_of(self, pid: int) -> dict[str, str]:
        """The environment `pid` was started with; empty where we may not read it."""
        try:
            raw = (self.proc / str(pid) / "environ").read_bytes()
        except OSError:
            return {}
        pairs = (item.partition(b"=") for item in raw.split(b"\0") if item)
        return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}

    def _stat_of(self, pid: int, number: int) -> int | None:
        """Field `number` (from 1, after the second) of ``/proc/<pid>/stat``."""
        try:
            text = (self.proc / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        # The second field is a name in parentheses that may hold anything, these included.
        return int(text.rpartition(")")[2].split()[number - 3])
