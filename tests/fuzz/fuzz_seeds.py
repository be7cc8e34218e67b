"""Good files to start from, one of each shape that is read; all names of events in them are unique."""

from __future__ import annotations

import gzip
import io
import json
import random
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_BASE_NS = 1_790_857_026_000_000_000
_GLOBAL_PID = 0x0001_0000_6F00_0000


class Seed(NamedTuple):
    """A file. `text` is its JSON, empty where it is none; `marks` are (where an event ends in it, its name).

    `pack` makes the file's bytes of a text.
    """

    name: str
    text: bytes
    marks: list[tuple[int, str]]
    pack: Callable[[bytes], bytes]

    @property
    def data(self) -> bytes:
        return self.pack(self.text)


def make_seed(shape: str, chance: random.Random) -> Seed:
    """A file of one of `SHAPES`, of 20 to 120 events."""
    return SHAPES[shape](chance)


def _plain(text: bytes) -> bytes:
    return text


def _gzip(text: bytes) -> bytes:
    return gzip.compress(text, 6, mtime=0)


def _members(text: bytes) -> bytes:
    """Several gzip members in a row, as a writer that appends makes them."""
    step = len(text) // 3 + 1
    return b"".join(_gzip(text[at : at + step]) for at in range(0, len(text), step))


def _zip(text: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("trace.json"), text, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def _assemble(head: str, events: list[dict[str, Any]], between: str, tail: str, indent: int | None) -> Any:
    """The text of a trace, and where each event that has a name of its own ends."""
    text = head.encode()
    marks: list[tuple[int, str]] = []
    for number, event in enumerate(events):
        text += (between if number else "").encode() + json.dumps(event, indent=indent).encode()
        if event["ph"] in {"X", "i", "C", "B", "b"}:
            marks.append((len(text), event["name"]))
    return text + tail.encode(), marks


def _slices(
    chance: random.Random, pid: Any, tid: Any, start: float, count: int, tag: str
) -> list[dict[str, Any]]:
    """Slices that nest, one beside the other."""
    events = []
    at = start
    for number in range(count):
        length = chance.randrange(4, 400)
        common = {"cat": "cpu_op", "pid": pid, "tid": tid}
        events.append(
            {
                "ph": "X",
                **common,
                "name": f"{tag}-outer-{number}",
                "ts": at,
                "dur": length,
                "args": {"n": number},
            }
        )
        events.append(
            {"ph": "X", **common, "name": f"{tag}-inner-{number}", "ts": at + 1.25, "dur": length - 2.5}
        )
        at += length + chance.choice((0, 1.5, 20))
    return events


def _kineto_events(chance: random.Random, tag: str) -> list[dict[str, Any]]:
    count = chance.randrange(4, 20)
    start = chance.choice((5_109_774_773_078.308, 120.25))
    events = _slices(chance, 4001, 4001, start, count, tag)
    for number in range(count):
        at = start + 30 * number
        launch = {"pid": 4001, "tid": 4007, "cat": "ac2g", "name": "ac2g", "id": number + 1}
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": f"{tag}-launch-{number}", "pid": 4001, "tid": 4007}
            | {"ts": at, "dur": 5.5, "args": {"correlation": number + 1}},
            {"ph": "s", **launch, "ts": at},
            {"ph": "X", "cat": "kernel", "name": f"{tag}-kernel-{number}", "pid": 0, "tid": 7}
            | {"ts": at + 40, "dur": 20.125, "args": {"correlation": number + 1, "stream": 7}},
            {"ph": "f", **launch, "pid": 0, "tid": 7, "ts": at + 40, "bp": "e"},
        ]
    described = {"ph": "M", "pid": 4001, "ts": start}
    return [
        {**described, "name": "process_name", "tid": 0, "args": {"name": "python"}},
        {**described, "name": "thread_name", "tid": 4001, "args": {"name": "thread 4001 (python)"}},
        *events,
        {
            "ph": "i",
            "s": "t",
            "name": f"{tag}-memory",
            "pid": 4001,
            "tid": 4001,
            "ts": start,
            "args": {"Bytes": 3},
        },
        {"ph": "X", "cat": "Trace", "name": f"{tag}-span", "pid": "Spans", "tid": "PyTorch Profiler"}
        | {"ts": start, "dur": 9000},
        {"ph": "i", "s": "g", "name": f"{tag}-end", "pid": "", "tid": "", "ts": start + 9000},
    ]


def _kineto(pack: Callable[[bytes], bytes], name: str, between: str, indent: int | None) -> Any:
    def make(chance: random.Random) -> Seed:
        rank = chance.randrange(4)
        about = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4},
            "baseTimeNanoseconds": _BASE_NS,
        }
        head = json.dumps(about, indent=indent)[:-1].rstrip() + ',\n  "traceEvents": [\n'
        tail = '\n  ],\n  "traceName": "t.json"\n}\n'
        text, marks = _assemble(head, _kineto_events(chance, f"k{rank}"), between, tail, indent)
        return Seed(name, text, marks, pack)

    return make


def _array(chance: random.Random) -> Seed:
    events = _slices(chance, "CPU functions", 1, 100.5, chance.randrange(8, 30), "array")
    text, marks = _assemble(
        "[", events, chance.choice((",", ",\n", " , ")), chance.choice(("]", "", ",]")), None
    )
    return Seed("trace_rank1.json", text, marks, _plain)


def _begins(chance: random.Random) -> Seed:
    """B and E, nested, and counters."""
    events: list[dict[str, Any]] = []
    at = 1000.0
    for number in range(chance.randrange(6, 25)):
        common = {"pid": 7, "tid": "9"}
        events += [
            {"ph": "B", **common, "name": f"b-{number}", "ts": at},
            {"ph": "B", **common, "name": f"b-within-{number}", "ts": at + 1},
            {"ph": "E", **common, "ts": at + 2},
            {"ph": "E", **common, "ts": at + 5.5},
            {"ph": "C", "pid": 7, "name": f"queue-{number}", "ts": at, "args": {"length": number}},
        ]
        at += 10
    text, marks = _assemble('{"traceEvents":[', events, ",\n", "]}", None)
    return Seed("begins.json", text, marks, _plain)


def _async(chance: random.Random) -> Seed:
    """Asynchronous slices by id and id2, some across others, and flows with a step between."""
    events: list[dict[str, Any]] = []
    for number in range(chance.randrange(6, 20)):
        at = 50.0 + 7 * number
        key: dict[str, Any] = chance.choice(
            (
                {"id": number},
                {"id": f"0x{number:x}"},
                {"id2": {"local": f"r{number}"}},
                {"id2": {"global": number}},
            )
        )
        common = {"cat": "request", "pid": 3, "tid": 3, **key}
        events += [
            {"ph": "b", **common, "name": f"request-{number}", "ts": at, "args": {"tokens": number}},
            {"ph": "e", **common, "name": f"request-{number}", "ts": at + 20.5},
            {"ph": "X", "pid": 3, "tid": 3, "name": f"work-{number}", "ts": at, "dur": 6},
            {"ph": "s", "cat": "f", "name": "f", "id": number % 3, "pid": 3, "tid": 3, "ts": at + 1},
            {"ph": "t", "cat": "f", "name": "f", "id": number % 3, "pid": 3, "tid": 3, "ts": at + 2},
            {
                "ph": "f",
                "cat": "f",
                "name": "f",
                "id": number % 3,
                "pid": 3,
                "tid": 3,
                "ts": at + 3,
                "bp": "e",
            },
        ]
    text, marks = _assemble('{"displayTimeUnit":"ns","traceEvents":[\n', events, ",\n", "\n]}\n", None)
    return Seed("requests.json.gz", text, marks, _gzip)


def _ray(chance: random.Random) -> Seed:
    events = []
    at = 1_795_966_682_358_428.75
    for number in range(chance.randrange(10, 50)):
        kind = chance.choice(("task:execute", "submit_task", "task:store_outputs"))
        events.append(
            {
                "cat": kind,
                "name": f"{kind}-{number}",
                "pid": f"10.0.0.{number % 2}",
                "tid": f"worker:{number % 3:04x}",
            }
            | {"ts": at, "dur": 90.5, "ph": "X", "cname": "rail_load", "args": {}}
        )
        at += 100
    text, marks = _assemble("[", events, ", ", "]", None)
    return Seed("ray_timeline.json", text, marks, _plain)


def _nsys(chance: random.Random) -> Seed:
    """A small export of Nsight Systems: not JSON, so it is only damaged as a whole."""
    rows = [
        (1000 * n, 1000 * n + 300, n, f"kernel_{chance.randrange(3)}", f"phase_{n}")
        for n in range(1, chance.randrange(10, 40))
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.sqlite"
        base = sqlite3.connect(path)
        base.executescript(
            "pragma page_size = 1024;"
            "create table StringIds (id integer primary key, value text);"
            "create table TARGET_INFO_SESSION_START_TIME (utcEpochNs int, utcTime text, localTime text);"
            "create table NVTX_EVENTS"
            " (start int, end int, eventType int, text text, globalTid int, textId int);"
            "create table CUPTI_ACTIVITY_KIND_RUNTIME (start int, end int, eventClass int, globalTid int,"
            " correlationId int, nameId int, returnValue int);"
            "create table CUPTI_ACTIVITY_KIND_KERNEL (start int, end int, deviceId int, contextId int,"
            " streamId int, correlationId int, globalPid int, demangledName int, shortName int);"
        )
        base.executemany("insert into StringIds values (?, ?)", [(n, row[3]) for n, row in enumerate(rows)])
        base.execute("insert into TARGET_INFO_SESSION_START_TIME values (1785620044423518993, '', '')")
        thread = _GLOBAL_PID + 0x6F
        base.executemany(
            "insert into NVTX_EVENTS values (?, ?, 59, ?, ?, null)",
            [(start - 100, end + 100, text, thread) for start, end, _, _, text in rows],
        )
        base.executemany(
            "insert into CUPTI_ACTIVITY_KIND_RUNTIME values (?, ?, 1, ?, ?, 0, 0)",
            [(start, start + 50, thread, number) for start, _, number, _, _ in rows],
        )
        base.executemany(
            "insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, 0, 1, 7, ?, ?, 1, 1)",
            [(start + 100, end, number, _GLOBAL_PID) for start, end, number, _, _ in rows],
        )
        base.commit()
        base.close()
        data = path.read_bytes()
    return Seed("report.sqlite", b"", [], lambda _: data)


SHAPES: dict[str, Callable[[random.Random], Seed]] = {
    "kineto": _kineto(_plain, "rank.pt.trace.json", ",\n", 2),
    "kineto_line": _kineto(_plain, "rank.pt.trace.json", ", ", None),
    "kineto_gzip": _kineto(_gzip, "host_1.123.pt.trace.json.gz", ",\n", 2),
    "kineto_members": _kineto(_members, "host_1.123.pt.trace.json.gz", ",\n", 2),
    "kineto_zip": _kineto(_zip, "trace.zip", ",\n", 2),
    "sglang": _kineto(_gzip, "run1-rollout0001-TP-1-DECODE.trace.json.gz", ",\n", 2),
    "array": _array,
    "begins": _begins,
    "async": _async,
    "ray": _ray,
    "nsys": _nsys,
}
