"""This process's descendants: which there are, what memory they hold, whether they are gone."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")
_POLL_S: Final = 0.05
_SAMPLE_S: Final = 1.0


class ProcessId(NamedTuple):
    """A process, told from a later one with the same pid by its start (clock ticks after boot)."""

    pid: int
    start_ticks: int


def _read_stat(pid: int) -> tuple[int, int, str] | None:
    """Parent's pid, start in clock ticks, state; ``None`` for a process that is no more."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name before it is in parentheses and may hold anything.
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), int(fields[19]), fields[0]


def _list_all() -> Iterator[tuple[ProcessId, int]]:
    """Every process with its parent's pid. None where there is no /proc."""
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        stat = _read_stat(int(entry.name)) if entry.name.isdigit() else None
        if stat is not None:
            yield ProcessId(int(entry.name), stat[1]), stat[0]


def list_descendants(root: int) -> set[ProcessId]:
    """All processes below `root`, without it. Empty where there is no /proc."""
    children: dict[int, list[ProcessId]] = {}
    for process, parent in _list_all():
        children.setdefault(parent, []).append(process)
    found: set[ProcessId] = set()
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found.update(below)
        todo += [process.pid for process in below]
    return found


def list_users(folder: str) -> set[ProcessId]:
    """All other processes that were started with ``TMPDIR`` as `folder`. Empty where there is no /proc."""
    mark = f"TMPDIR={folder}".encode()
    found: set[ProcessId] = set()
    for process, _ in _list_all():
        with suppress(OSError):  # another user's, or gone
            if mark in (_PROC / str(process.pid) / "environ").read_bytes().split(b"\0"):
                found.add(process)
    return {process for process in found if process.pid != os.getpid()}


def is_alive(process: ProcessId) -> bool:
    """Whether exactly this process still runs; a zombie does not."""
    stat = _read_stat(process.pid)
    return stat is not None and stat[1] == process.start_ticks and stat[2] != "Z"


def wait_until_gone(processes: Iterable[ProcessId], patience_s: float) -> None:
    """Wait until none of them runs; whoever does after `patience_s` is killed."""
    deadline = time.monotonic() + patience_s
    left = [process for process in processes if is_alive(process)]
    while left:
        if time.monotonic() > deadline:
            for process in left:
                os.kill(process.pid, signal.SIGKILL)
            deadline = time.monotonic() + patience_s
        time.sleep(_POLL_S)
        left = [process for process in left if is_alive(process)]


class PeakMemory:
    """Samples the memory of this process and its descendants once a second while it is entered.

    `peak_bytes` is the largest sum of proportional set sizes that was seen (pages that
    several processes share count once); ``None`` where the kernel does not tell.
    """

    def __init__(self) -> None:
        self.peak_bytes: int | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="demo memory", daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        root = os.getpid()
        while True:
            pids = [root, *(process.pid for process in list_descendants(root))]
            sizes = [size for size in map(_proportional_bytes, pids) if size is not None]
            if sizes:
                self.peak_bytes = max(self.peak_bytes or 0, sum(sizes))
            if self._ended.wait(_SAMPLE_S):
                return


def _proportional_bytes(pid: int) -> int | None:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return None
