"""Processes and threads of the output: rules 1 and 2.

Every input gets process numbers of its own, every thread a number that is unique in the
file; names carry what the numbers were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from slime_profiler_plugin import schema
from slime_profiler_plugin.phases import role_order
from slime_profiler_plugin.read import ProcessSeen

#: Thread numbers start here, so that none is taken for its process's main thread.
_FIRST_TID: Final = 1_000_000
_RANK_ORDER: Final = ("tp", "pp", "dp", "cp", "ep")
DOT: Final = " · "


class Tracks:
    """Numbers for processes and threads in order of presentation, and their metadata events."""

    def __init__(self) -> None:
        self._processes: dict[int, tuple[str, str]] = {}
        self._threads: dict[int, tuple[int, str]] = {}

    def add_process(self, name: str, labels: str) -> int:
        """A new pid; it is shown below all earlier ones."""
        pid = len(self._processes) + 1
        self._processes[pid] = (name, labels)
        return pid

    def add_thread(self, pid: int, name: str) -> int:
        """A new tid of process `pid`; it is shown below all its earlier ones."""
        tid = _FIRST_TID + len(self._threads)
        self._threads[tid] = (pid, name)
        return tid

    def metadata_events(self) -> Iterator[dict[str, Any]]:
        """Names, labels and order as Chrome trace events."""
        for pid, (name, labels) in self._processes.items():
            yield _metadata("process_name", pid, 0, name=name)
            yield _metadata("process_labels", pid, 0, labels=labels)
            yield _metadata("process_sort_index", pid, 0, sort_index=pid)
        for tid, (pid, name) in self._threads.items():
            yield _metadata("thread_name", pid, tid, name=name)
            yield _metadata("thread_sort_index", pid, tid, sort_index=tid - _FIRST_TID)


def _metadata(kind: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": args}


def format_rank(role: str | None, rank: int | None, engine: dict[str, int], pid: int) -> str:
    """``actor rank 3``, ``engine 1``, ``driver``, or by pid where a role is not known.

    >>> format_rank("actor", 3, {}, 77), format_rank("engine", 0, {"index": 1, "node_rank": 1}, 77)
    ('actor rank 3', 'engine 1 node 1')
    """
    if role is None:
        return f"process {pid}"
    if role == "engine":
        index = engine.get("index", rank)
        node = engine.get("node_rank", 0)
        return (f"engine {index}" if index is not None else f"engine, pid {pid}") + (
            f" node {node}" if node else ""
        )
    return role if rank is None or role == "driver" else f"{role} rank {rank}"


def format_ranks(ranks: dict[str, int]) -> str:
    """The parallel ranks.

    >>> format_ranks({"dp": 1, "tp": 1, "pp": 0})
    'tp1 pp0 dp1'
    """
    known = [name for name in _RANK_ORDER if name in ranks]
    others = sorted(name for name in ranks if name not in _RANK_ORDER)
    return " ".join(f"{name}{ranks[name]}" for name in (*known, *others))


def presentation_order(process: schema.Process) -> tuple[Any, ...]:
    """Sort key of a process: attempt, role, rank, start."""
    role = process.role
    rank = process.engine.get("index", process.rank) if role == "engine" else process.rank
    return (
        process.attempt,
        role_order(role),
        rank is None,
        rank or 0,
        process.rank or 0,
        process.start_unix_ns,
    )


def rank_key(process: schema.Process) -> tuple[Any, ...]:
    """Equal for the incarnations of one rank of one attempt."""
    engine = tuple(sorted(process.engine.items()))
    return (process.attempt, process.role, process.rank, engine, tuple(sorted(process.ranks.items())))


def group_incarnations(processes: Sequence[ProcessSeen]) -> list[list[ProcessSeen]]:
    """Processes that are the same rank of the same attempt, by start; the first is incarnation 1."""
    groups: dict[tuple[Any, ...], list[ProcessSeen]] = {}
    for records in processes:
        groups.setdefault(rank_key(records.process), []).append(records)
    return [sorted(group, key=lambda r: r.process.start_unix_ns) for group in groups.values()]


def is_numbered(process: schema.Process) -> bool:
    """Whether it says which one of its role it is."""
    return process.role is not None and (process.rank is not None or bool(process.engine))


def name_processes(processes: Sequence[ProcessSeen], several_attempts: bool) -> dict[tuple[str, str], str]:
    """The name of each process by its key, without its part.

    Incarnations of a rank are numbered, processes of a role without ranks are told apart by pid.
    """
    names = {}
    for group in group_incarnations(processes):
        for number, records in enumerate(group, 1):
            process = records.process
            parts = [format_rank(process.role, process.rank, process.engine, process.pid)]
            if process.ranks:
                parts.append(format_ranks(process.ranks))
            if several_attempts:
                parts.append(f"attempt {process.attempt}")
            if len(group) > 1 and process.role is not None:
                parts.append(f"incarnation {number}" if is_numbered(process) else f"pid {process.pid}")
            names[records.key] = DOT.join(parts)
    # Schedulers of one engine that do not say which part of it they are, for one.
    shown = Counter(names.values())
    for records in processes:
        name = names[records.key]
        if shown[name] > 1:
            names[records.key] = f"{name}{DOT}pid {records.process.pid}"
    return names
