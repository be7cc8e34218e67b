"""One run as it was read: its processes, its windows, and what was wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from slime_profiler_plugin import schema
from slime_profiler_plugin.phases import role_order
from slime_profiler_plugin.schema import INITIAL

from ._damage import Damage, ReadError
from ._process import ProcessRecords
from .kineto import TraceHeader
from .traces import Owner, TraceFile

#: A larger world is a damaged number, and not worth a list of who is missing.
MOST_RANKS: Final = 100_000


class TraceWindow(NamedTuple):
    """A torch.profiler window: its file, the rollout whose folder it lies in, what it says of itself."""

    path: Path
    rollout: int | str
    role: str
    rank: int | None
    header: TraceHeader

    @property
    def trace(self) -> TraceFile:
        """The window as any other trace."""
        return TraceFile(self.path, "ours", self.header, Owner(self.role, self.rank))

    @property
    def attempt(self) -> int:
        """The attempt it says it belongs to, 0 where it does not say."""
        return int(self.header.identity.get("attempt", 0))

    @property
    def covers(self) -> list[int | str]:
        """The rollouts that it says it covers, else the one whose folder it lies in."""
        return self.header.rollouts or [self.rollout]


class TraceBeside(NamedTuple):
    """A trace that another program wrote of an attempt of the run, and that was put beside its own."""

    attempt: int
    trace: TraceFile


class RoleRanks(NamedTuple):
    """How many ranks of a role were seen in an attempt; `world_size` is what they say it is."""

    attempt: int
    role: str
    seen: frozenset[int]
    world_size: int | None

    @property
    def missing(self) -> list[int]:
        """Ranks that should be there and are not."""
        size = self.world_size or 0
        return sorted(set(range(size)) - self.seen) if size <= MOST_RANKS else []


def count_ranks(processes: Iterable[schema.Process]) -> list[RoleRanks]:
    """Ranks seen, per attempt and role (in that order), for the roles that number their processes."""
    seen: dict[tuple[int, str], set[int]] = defaultdict(set)
    sizes: dict[tuple[int, str], int] = {}
    for process in processes:
        if process.role is None or process.rank is None:
            continue
        key = (process.attempt, process.role)
        seen[key].add(process.rank)
        if process.world_size is not None:
            sizes[key] = max(sizes.get(key, 0), process.world_size)
    ordered = sorted(seen, key=lambda key: (key[0], role_order(key[1])))
    return [RoleRanks(*key, frozenset(seen[key]), sizes.get(key)) for key in ordered]


class Run:
    """A run: its processes in the order in which they started, its windows, and what was wrong.

    `beside` are traces of other programs that lie in its folder (Ray's), by path. `ignored` lists files that
    are no source.
    """

    def __init__(self, run_id: str, folders: list[Path]) -> None:
        self.run_id = run_id
        self.folders = folders
        self.attempts: list[int] = []
        self.processes: list[ProcessRecords] = []
        self.windows: list[TraceWindow] = []
        self.beside: list[TraceBeside] = []
        self.damage: list[Damage] = []
        self.ignored: list[Path] = []

    def rollouts(self) -> list[int | str]:
        """Every rollout that a record names, ``initial`` first."""
        named = {r for process in self.processes for r in process.extents if r is not None}
        return sorted(
            named, key=lambda r: (r != INITIAL, isinstance(r, str), r if isinstance(r, int) else 0, str(r))
        )

    def keep_attempt(self, attempt: int) -> None:
        """Forget the processes, windows and traces of all others.

        Raises `ReadError` when there is no such attempt.
        """
        if attempt not in self.attempts:
            told = ", ".join(map(str, self.attempts))
            raise ReadError(f"run {self.run_id} has no attempt {attempt}; it has {told}")
        self.attempts = [attempt]
        self.processes = [p for p in self.processes if p.process.attempt == attempt]
        self.windows = [w for w in self.windows if w.attempt == attempt]
        self.beside = [b for b in self.beside if b.attempt == attempt]

    def role_ranks(self) -> list[RoleRanks]:
        """Ranks seen, per attempt and role, for the roles that number their processes."""
        return count_ranks(records.process for records in self.processes)
