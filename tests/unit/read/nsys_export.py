"""Makes exports as Nsight Systems writes them, table by table.

A row is a dict; a table has the columns that any of its rows has. So a test leaves out what its release, or
its capture, did not have.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]

#: Unix ns at the start of every session here.
BASE_NS = 1_785_620_044_423_518_993
KERNEL, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMCPY, MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH, SYNC = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
PUSH_POP, START_END, MARK, CATEGORY, THREAD, DOMAIN = 59, 60, 34, 33, 39, 75


def gpid(pid: int, machine: int = 1) -> int:
    """A ``globalPid``."""
    return (machine << 48) | (pid << 24)


def gtid(pid: int, tid: int, machine: int = 1) -> int:
    """A ``globalTid``."""
    return gpid(pid, machine) | tid


def strings(*values: str) -> list[Row]:
    """StringIds: the first has id 1."""
    return [{"id": number, "value": value} for number, value in enumerate(values, 1)]


def call(start: int, end: int, pid: int, correlation: int, name: int = 1, **more: Any) -> Row:
    """A call of the CUDA runtime."""
    return {
        "start": start,
        "end": end,
        "eventClass": 0,
        "globalTid": gtid(pid, pid),
        "correlationId": correlation,
        "nameId": name,
        "returnValue": 0,
        **more,
    }


def activity(start: int, end: int, pid: int | None, correlation: int, device: int = 0, **more: Any) -> Row:
    """Something that a GPU did; `pid` ``None``: a release without ``globalPid``."""
    return {
        "start": start,
        "end": end,
        "deviceId": device,
        "contextId": 1,
        "streamId": 7,
        "correlationId": correlation,
        **({} if pid is None else {"globalPid": gpid(pid)}),
        **more,
    }


def kernel(start: int, end: int, pid: int | None, correlation: int, device: int = 0, **more: Any) -> Row:
    """A kernel; its names are strings 2 and 3."""
    return activity(start, end, pid, correlation, device, **{"demangledName": 2, "shortName": 3, **more})


def nvtx(event_type: int, start: int, end: int | None, pid: int, **more: Any) -> Row:
    """A row of NVTX_EVENTS, on the main thread of `pid`."""
    return {"start": start, "end": end, "eventType": event_type, "globalTid": gtid(pid, pid), **more}


def session() -> list[Row]:
    """TARGET_INFO_SESSION_START_TIME."""
    return [{"utcEpochNs": BASE_NS, "utcTime": "", "localTime": ""}]


def write_export(path: Path, tables: Mapping[str, Sequence[Row]], *, keyed: bool = True) -> Path:
    """An export with these tables; `keyed`: StringIds has a primary key, as Nsight Systems makes it."""
    with closing(sqlite3.connect(path)) as connection:
        for name, rows in tables.items():
            columns = list(dict.fromkeys(column for row in rows for column in row)) or ["start"]
            keys = " primary key" if keyed and name == "StringIds" else ""
            declared = ", ".join(f'"{c}" integer{keys}' if c == "id" else f'"{c}"' for c in columns)
            connection.execute(f'create table "{name}" ({declared})')
            marks = ", ".join("?" * len(columns))
            connection.executemany(
                f'insert into "{name}" values ({marks})',
                [tuple(row.get(column) for column in columns) for row in rows],
            )
        connection.commit()
    return path


def two_processes() -> dict[str, list[Row]]:
    """Two ranks on two GPUs in one report, with the same correlation ids."""
    return {
        "StringIds": strings("cudaLaunchKernel_v7000", "void gemm<float>(int)", "gemm", "python", "main"),
        "TARGET_INFO_SESSION_START_TIME": session(),
        "PROCESSES": [{"globalPid": gpid(p), "pid": p, "name": "python"} for p in (111, 112)],
        "ThreadNames": [{"nameId": 5, "priority": 20, "globalTid": gtid(111, 111)}],
        RUNTIME: [call(1000, 1500, 111, 77), call(1100, 1600, 112, 77), call(1700, 1800, 111, 78)],
        KERNEL: [kernel(3000, 6000, 111, 77), kernel(3100, 6200, 112, 77, device=1)],
    }
