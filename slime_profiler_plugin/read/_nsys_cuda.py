"""What a GPU did, in an Nsight Systems export, and the calls that had it done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw

from ._nsys_database import Database
from ._nsys_launches import Launches
from ._nsys_places import NONE, Place, Places, process_key
from ._nsys_times import as_ns, microseconds
from .kineto import TraceEvent

_ARROW: Final = Raw(b'"ac2g"')
_TO_ENCLOSING: Final = Raw(b'"e"')
_COPIES: Final = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "unified HtoD",
    12: "unified DtoH",
    13: "unified DtoD",
}
_MEMORY: Final = {
    0: "Pageable",
    1: "Pinned",
    2: "Device",
    3: "Array",
    4: "Managed",
    5: "Device Static",
    6: "Managed Static",
}
_STREAM_WAIT_EVENT, _STREAM_SYNC = 2, 3
_SYNCS: Final = {
    1: "Event sync",
    _STREAM_WAIT_EVENT: "Stream wait event",
    _STREAM_SYNC: "Stream sync",
    4: "Context sync",
}
_GPU_COLUMNS: Final = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "correlationId")
_CALL_COLUMNS: Final = (
    "start",
    "end",
    "globalTid",
    "correlationId",
    "nameId",
    "eventClass",
    "cbid",
    "returnValue",
)
_DRIVER: Final = 1


class Activity(NamedTuple):
    """A table of what a GPU did: which columns make its name and which are shown.

    `waits`: of waiting for a stream, not of its work. Such a row may name a GPU that the process does not
    use, so that it stands in the process itself.
    """

    table: str
    cat: str
    naming: tuple[str, ...]
    name: Callable[[Database, Sequence[Any]], Raw]
    shown: dict[str, str]
    waits: bool = False


class Calls(NamedTuple):
    """A table of calls. `beside`: they cross what else the thread does, and have a row of that name."""

    table: str
    cat: str
    beside: str = ""


def _kernel(database: Database, names: Sequence[Any]) -> Raw:
    return database.name(next((name for name in names if database.text(name)), None), "kernel")


def _memcpy(database: Database, kinds: Sequence[Any]) -> Raw:
    copy, source, target = kinds
    ends = (
        f" ({_of(_MEMORY, source)} -> {_of(_MEMORY, target)})"
        if source is not None and target is not None
        else ""
    )
    return database.name(f"Memcpy {_of(_COPIES, copy)}{ends}", "")


def _memset(database: Database, kinds: Sequence[Any]) -> Raw:
    return database.name(f"Memset ({_of(_MEMORY, kinds[0])})" if kinds[0] is not None else "Memset", "")


def _graph(database: Database, graphs: Sequence[Any]) -> Raw:
    return database.name("CUDA graph" if graphs[0] is None else f"CUDA graph {graphs[0]}", "")


def _sync(database: Database, kinds: Sequence[Any]) -> Raw:
    kind, event = kinds
    if kind == _STREAM_WAIT_EVENT and event == NONE:  # schema 3.24 counts from 0: no event is waited for
        kind = _STREAM_SYNC
    return database.name(_of(_SYNCS, kind), "")


ACTIVITIES: Final = (
    Activity(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "kernel",
        ("demangledName", "shortName", "mangledName"),
        _kernel,
        {
            "gridX": "grid x",
            "gridY": "grid y",
            "gridZ": "grid z",
            "blockX": "block x",
            "blockY": "block y",
            "blockZ": "block z",
            "registersPerThread": "registers per thread",
            "staticSharedMemory": "static shared memory",
            "dynamicSharedMemory": "dynamic shared memory",
            "graphId": "graph",
            "graphNodeId": "graph node",
        },
    ),
    Activity(
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "gpu_memcpy",
        ("copyKind", "srcKind", "dstKind"),
        _memcpy,
        {
            "bytes": "bytes",
            "srcDeviceId": "from device",
            "dstDeviceId": "to device",
            "graphNodeId": "graph node",
        },
    ),
    Activity(
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "gpu_memset",
        ("memKind",),
        _memset,
        {"bytes": "bytes", "value": "value", "graphNodeId": "graph node"},
    ),
    Activity(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        "cuda_graph",
        ("graphId",),
        _graph,
        {"graphId": "graph", "graphExecId": "graph exec"},
    ),
    Activity(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "cuda_sync",
        ("syncType", "eventId"),
        _sync,
        {},
        waits=True,
    ),
)
LAUNCHES: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
CALLS: Final = (
    Calls(LAUNCHES, "cuda_runtime"),
    Calls("CUDNN_EVENTS", "cudnn"),
    Calls("CUBLAS_EVENTS", "cublas"),
    Calls("OSRT_API", "os_runtime", "OS runtime"),
    Calls("PROFILER_OVERHEAD", "profiler_overhead", "profiler overhead"),
    Calls("CUPTI_ACTIVITY_KIND_OVERHEAD", "cupti_overhead", "CUPTI overhead"),
)


class CudaTables:
    """The events of these tables. `bad` counts rows with no time that could be used."""

    def __init__(self, database: Database, places: Places) -> None:
        """Reads which calls launched something."""
        self._database = database
        self._places = places
        self.bad = 0
        self.launches = Launches(
            database, places, LAUNCHES, [activity.table for activity in ACTIVITIES if not activity.waits]
        )

    def calls(self, calls: Calls, capture_end_ns: int) -> Iterator[TraceEvent]:
        """The calls of a table, each on its thread."""
        places, cat = self._places, _raw(calls.cat)
        driver = _raw("cuda_driver")
        for row in self._database.rows(calls.table, _CALL_COLUMNS):
            start, end, thread, correlation, name, event_class, cbid, returned = row
            times = self._times(start, end, capture_end_ns)
            if times is None:
                continue
            place = places.beside(thread, calls.beside) if calls.beside else places.thread(thread)
            yield from places.take_new()
            args = _times_args(end)
            if isinstance(correlation, int) and isinstance(thread, int):
                args["correlation"] = places.correlation(process_key(thread), correlation)
            if returned:
                args["return value"] = returned
            yield _slice(
                driver if event_class == _DRIVER and calls.table == LAUNCHES else cat,
                self._database.name(name, "call" if cbid is None else f"cbid {cbid}"),
                place,
                times,
                args,
            )

    def activities(self, activity: Activity, capture_end_ns: int) -> Iterator[TraceEvent]:
        """What a GPU did, each on its stream, with an arrow from the call that launched it."""
        places, cat = self._places, _raw(activity.cat)
        named = len(_GPU_COLUMNS) + len(activity.naming)
        labels = tuple(activity.shown.values())
        for row in self._database.rows(activity.table, (*_GPU_COLUMNS, *activity.naming, *activity.shown)):
            start, end, global_pid, device, context, stream, correlation = row[: len(_GPU_COLUMNS)]
            times = self._times(start, end, capture_end_ns)
            if times is None:
                continue
            process = self.launches.process_of(global_pid)
            place = (
                places.waiting(process, stream) if activity.waits else places.stream(process, device, stream)
            )
            yield from places.take_new()
            args = _times_args(end)
            args.update(
                (label, value)
                for label, value in zip(
                    ("device", "context", "stream", *labels),
                    (device, context, stream, *row[named:]),
                    strict=True,
                )
                if value is not None
            )
            arrow: Iterator[TraceEvent] = iter(())
            if isinstance(correlation, int):
                args["correlation"] = (
                    correlation if process is None else places.correlation(process, correlation)
                )
                if not activity.waits:
                    arrow = self._arrow(process, correlation, place, times[0])
            yield _slice(
                cat, activity.name(self._database, row[len(_GPU_COLUMNS) : named]), place, times, args
            )
            yield from arrow

    def _times(self, start: object, end: object, capture_end_ns: int) -> tuple[int, int] | None:
        """Start and duration in ns."""
        start_ns, end_ns = as_ns(start), as_ns(end)
        if start_ns is None or (end is not None and end_ns is None):
            self.bad += 1
            return None
        if end_ns is None:
            end_ns = max(capture_end_ns, start_ns)
        return start_ns, end_ns - start_ns

    def _arrow(self, process: int | None, correlation: int, to: Place, to_ns: int) -> Iterator[TraceEvent]:
        launch = self.launches.find(process, correlation)
        if launch is None:
            return
        place = self._places.thread(launch.global_tid)
        yield from self._places.take_new()
        arrow = TraceEvent(ph="s", cat=_ARROW, name=_ARROW, pid=place.pid, tid=place.tid)
        arrow.id, arrow.ts = launch.arrow, microseconds(launch.start_ns)
        yield arrow
        head = TraceEvent(ph="f", cat=_ARROW, name=_ARROW, pid=to.pid, tid=to.tid, bp=_TO_ENCLOSING)
        head.id, head.ts = launch.arrow, microseconds(to_ns)
        yield head


def _slice(cat: Raw, name: Raw, place: Place, times: tuple[int, int], args: dict[str, object]) -> TraceEvent:
    return TraceEvent(
        ph="X",
        cat=cat,
        name=name,
        pid=place.pid,
        tid=place.tid,
        ts=microseconds(times[0]),
        dur=microseconds(times[1]),
        args=Raw(msgspec.json.encode(args)) if args else UNSET,
    )


def _times_args(end: object) -> dict[str, object]:
    return {"open": True} if end is None else {}


def _of(names: dict[int, str], kind: object) -> str:
    known = names.get(kind) if isinstance(kind, int) else None
    return known or f"kind {kind}"


def _raw(text: str) -> Raw:
    return Raw(msgspec.json.encode(text))
