"""Processes and threads of an Nsight Systems export, as a trace numbers them.

A ``globalTid`` holds the machine or VM in its upper 16 bits, then 24 bits of process id, then 24 of thread
id; a ``globalPid`` is the same with no thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from ._nsys_database import Database
from .kineto import TraceEvent

#: Correlation ids are counted per process: the process's number stands above those 40 bits.
_CORRELATION_BITS: Final = 40
#: What CUPTI writes for no stream and no event.
NONE: Final = 0xFFFF_FFFF
_UNKNOWN: Final = "unknown process"
#: SQL of what `process_key` makes of a column.
_PROCESSES: Final = {column: f'"{column}" >> 24' for column in ("globalTid", "globalPid")}


class Place(NamedTuple):
    """Where an event stands: its process and its thread, as `TraceEvent` says them."""

    pid: int | str
    tid: int | str


def process_key(global_id: int) -> int:
    """What tells a process apart from every other of the report: machine and process id.

    >>> process_key(0x0001_00006F_000070) == process_key(0x0001_00006F_000000)
    True
    """
    return (global_id >> 24) & 0xFF_FFFF_FFFF


class Places:
    """Gives each process and thread its ids, and its name when it is first met.

    Processes of the machine that is met first keep their ids; those of other machines have the machine's
    number added, as text: two VMs may both have a process 111.
    """

    def __init__(self, database: Database, tables: Sequence[str]) -> None:
        """`tables`: those whose events will be placed."""
        self._database = database
        #: With several processes ``CPU`` and ``GPU 0`` would not tell them apart.
        self._labelled = len(database.distinct(tables, _PROCESSES)) <= 1
        self._home: int | None = None
        self._numbers: dict[int, int] = {}
        self._threads: dict[int, Place] = {}
        self._new: list[TraceEvent] = []
        self._named: set[tuple[int | str, int | str | None]] = set()
        self._process_names = {
            process_key(row[0]): str(row[1])
            for row in database.rows("PROCESSES", ["globalPid", "name"])
            if isinstance(row[0], int) and row[1]
        }
        self._thread_names: dict[int, object] = {
            row[0]: row[1]
            for row in database.rows("ThreadNames", ["globalTid", "nameId"])
            if isinstance(row[0], int)
        }

    def rename_thread(self, global_tid: int, text: str) -> None:
        """The program itself has named a thread."""
        self._thread_names[global_tid] = text

    def thread(self, global_tid: object) -> Place:
        """The thread of an event; of process and thread 0 where the export does not say it."""
        place = self._threads.get(global_tid)  # type: ignore[call-overload]
        return place if place is not None else self._new_thread(global_tid)

    def beside(self, global_tid: object, what: str) -> Place:
        """A row of its own for what would cross the calls of the thread: `what` happens there, too."""
        pid = self._process_of(global_tid)
        tid = global_tid & 0xFF_FFFF if isinstance(global_tid, int) else 0
        place = Place(pid, f"{tid} {what}")
        self._name_thread(place, f"{self._name_of_thread(global_tid)} · {what}")
        return place

    def row(self, global_tid: object, what: str) -> Place:
        """A row of the whole process."""
        place = Place(self._process_of(global_tid), what)
        self._name_thread(place, what)
        return place

    def stream(self, process: int | None, device: object, stream: object) -> Place:
        """A stream of a GPU as `process`, a key, uses it."""
        gpu = f"GPU {_shown(device)}"
        pid, name = gpu, gpu
        if process is not None:
            pid, name = f"{self._pid(process)} {gpu}", self._process_name(process)
        place = Place(pid, stream if isinstance(stream, int) else _shown(stream))
        self._name_process(pid, name, gpu)
        self._name_thread(place, f"stream {_shown(stream)}")
        return place

    def waiting(self, process: int | None, stream: object) -> Place:
        """A row in `process` for its waiting for a stream."""
        of = "" if stream in (None, NONE) else f" stream {stream}"
        return self.row(None if process is None else process << 24, f"CUDA sync{of}")

    def correlation(self, process: int, correlation: int) -> int | str:
        """A correlation id that no other process of the report has."""
        return unique_correlation(self.number(process), correlation)

    def number(self, process: int) -> int:
        """A small number of the process, in the order of appearance."""
        return self._numbers.setdefault(process, len(self._numbers))

    def take_new(self) -> list[TraceEvent]:
        """The names of what was met since the last call."""
        new, self._new = self._new, []
        return new

    def _new_thread(self, global_tid: object) -> Place:
        tid = global_tid & 0xFF_FFFF if isinstance(global_tid, int) else 0
        place = Place(self._process_of(global_tid), tid)
        if isinstance(global_tid, int):
            self._threads[global_tid] = place
        self._name_thread(place, self._name_of_thread(global_tid))
        return place

    def _process_of(self, global_tid: object) -> int | str:
        if not isinstance(global_tid, int):
            self._name_process(_UNKNOWN, _UNKNOWN, "CPU")
            return _UNKNOWN
        process = process_key(global_tid)
        pid = self._pid(process)
        self._name_process(pid, self._process_name(process), "CPU")
        return pid

    def _name_of_thread(self, global_tid: object) -> str:
        if not isinstance(global_tid, int):
            return "unknown thread"
        tid = global_tid & 0xFF_FFFF
        known = self._database.text(self._thread_names.get(global_tid))
        return f"{known} ({tid})" if known else f"thread {tid}"

    def _pid(self, process: int) -> int | str:
        machine, pid = process >> 24, process & 0xFF_FFFF
        if self._home is None:
            self._home = machine
        return pid if machine == self._home else f"{pid} on machine {machine}"

    def _process_name(self, process: int) -> str:
        """The program's; empty where the report does not say it."""
        return self._process_names.get(process, "")

    def _name_process(self, pid: int | str, name: str, label: str) -> None:
        if (pid, None) not in self._named:
            self._named.add((pid, None))
            if name:
                self._new.append(_metadata("process_name", pid, 0, {"name": name}))
            if self._labelled:
                self._new.append(_metadata("process_labels", pid, 0, {"labels": label}))

    def _name_thread(self, place: Place, name: str) -> None:
        if place not in self._named:
            self._named.add(place)
            self._new.append(_metadata("thread_name", place.pid, place.tid, {"name": name}))


def unique_correlation(number: int, correlation: int) -> int | str:
    """A correlation id that is no other process's; of the first process of a report it is the same.

    >>> unique_correlation(0, 77), unique_correlation(1, 77)
    (77, 1099511627853)
    """
    if 0 <= correlation < 1 << _CORRELATION_BITS:
        return (number << _CORRELATION_BITS) | correlation
    return f"{number}:{correlation}"


def _metadata(what: str, pid: int | str, tid: int | str, args: dict[str, str]) -> TraceEvent:
    return TraceEvent(
        ph="M",
        name=Raw(msgspec.json.encode(what)),
        pid=pid,
        tid=tid,
        args=Raw(msgspec.json.encode(args)),
    )


def _shown(number: object) -> str:
    return "?" if number is None else str(number)
