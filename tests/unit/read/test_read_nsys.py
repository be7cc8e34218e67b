"""Nsight Systems exports of many shapes, made here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nsys_events import read_export
from nsys_export import (
    BASE_NS,
    CATEGORY,
    DOMAIN,
    GRAPH,
    KERNEL,
    MARK,
    MEMCPY,
    MEMSET,
    PUSH_POP,
    RUNTIME,
    START_END,
    SYNC,
    THREAD,
    activity,
    call,
    gpid,
    gtid,
    kernel,
    nvtx,
    session,
    strings,
    two_processes,
    write_export,
)

from slime_profiler_plugin.read.nsys import NsysPhase, nsys_phases


def test_two_processes_may_have_the_same_correlation_ids(tmp_path: Path) -> None:
    read = read_export(write_export(tmp_path / "r.sqlite", two_processes()))
    assert read.trace.header.base_ns == BASE_NS
    assert [(s.pid, s.start, f.pid, f.start) for s, f in read.arrows()] == [
        (111, 1000, "111 GPU 0", 3000),
        (112, 1100, "112 GPU 1", 3100),
    ]
    calls, kernels = read.cat("cuda_runtime"), read.cat("kernel")
    assert [(c.pid, c.tid, c.name, c.start, c.dur) for c in calls] == [
        (111, 111, "cudaLaunchKernel_v7000", 1000, 500),
        (112, 112, "cudaLaunchKernel_v7000", 1100, 500),
        (111, 111, "cudaLaunchKernel_v7000", 1700, 100),
    ]
    assert [(k.tid, k.name, k.start, k.dur) for k in kernels] == [
        (7, "void gemm<float>(int)", 3000, 3000),
        (7, "void gemm<float>(int)", 3100, 3100),
    ]
    joined = [calls[0].args["correlation"], calls[1].args["correlation"]]
    assert joined == [k.args["correlation"] for k in kernels]
    assert joined[0] == 77 != joined[1]
    assert read.names() == {
        111: "python",
        112: "python",
        (111, 111): "main (111)",
        (112, 112): "thread 112",
        "111 GPU 0": "python",
        "112 GPU 1": "python",
        ("111 GPU 0", 7): "stream 7",
        ("112 GPU 1", 7): "stream 7",
    }
    assert not [e for e in read.of("M") if e.name == "process_labels"], "they would not tell the two apart"
    assert read.damage == []


def test_the_processes_of_an_only_process_are_labelled(tmp_path: Path) -> None:
    tables = two_processes()
    tables[RUNTIME], tables[KERNEL] = tables[RUNTIME][:1], tables[KERNEL][:1]
    read = read_export(write_export(tmp_path / "r.sqlite", tables))
    labels = {e.pid: e.args["labels"] for e in read.of("M") if e.name == "process_labels"}
    assert labels == {111: "CPU", "111 GPU 0": "GPU 0"}


def test_reading_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    path = write_export(tmp_path / "r.sqlite", two_processes())
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        before = path.read_bytes()
        read_export(path)
        assert [p.name for p in tmp_path.iterdir()] == ["r.sqlite"]
        assert path.read_bytes() == before
    finally:
        tmp_path.chmod(0o755)


def test_twice_the_same(tmp_path: Path) -> None:
    path = write_export(tmp_path / "r.sqlite", two_processes())
    assert read_export(path).events == read_export(path).events


def test_odd_names_of_files(tmp_path: Path) -> None:
    path = write_export(tmp_path / "rank 0?mode=rw#%41.sqlite", two_processes())
    assert len(read_export(path).cat("kernel")) == 2


@pytest.mark.parametrize("table", [RUNTIME, KERNEL, "StringIds", "PROCESSES", "ThreadNames"])
def test_any_table_may_be_absent(tmp_path: Path, table: str) -> None:
    tables = two_processes()
    del tables[table]
    read = read_export(write_export(tmp_path / "r.sqlite", tables))
    assert len(read.cat("kernel")) == (0 if table == KERNEL else 2)
    assert len(read.cat("cuda_runtime")) == (0 if table == RUNTIME else 3)
    assert len(read.arrows()) == (0 if table in (RUNTIME, KERNEL) else 2)
    assert read.damage == []


def test_without_a_session_start_the_clock_is_unknown(tmp_path: Path) -> None:
    tables = two_processes()
    del tables["TARGET_INFO_SESSION_START_TIME"]
    assert read_export(write_export(tmp_path / "r.sqlite", tables)).trace.header.base_ns is None


def test_names_of_tables_may_end_in_a_version(tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "StringIds": strings("cudaLaunchKernel", "k", "k", "work"),
        "NVTX_EVENTS_V2": [nvtx(PUSH_POP, 10, 20, 5, textId=4)],
        f"{KERNEL}_V3": [kernel(30, 40, 5, 1)],
        "NVTX_EVENTS_EXTRA": [{"start": 1}],
    }
    read = read_export(write_export(tmp_path / "r.sqlite", tables))
    assert [e.name for e in read.of("X")] == ["work", "k"]
    assert read.notes() == [("unread", "1 rows of NVTX_EVENTS_EXTRA are not read")]


@pytest.mark.parametrize("keyed", [True, False])
def test_names_by_id_or_inline(tmp_path: Path, keyed: bool) -> None:
    tables = {
        "StringIds": strings("a call", "by id", "short"),
        RUNTIME: [call(1, 2, 5, 1), call(3, 4, 5, 2, name=99), call(5, 6, 5, 3, name="inline")],  # type: ignore[arg-type]
        KERNEL: [
            kernel(1, 2, 5, 9),
            kernel(3, 4, 5, 9, demangledName=None),
            kernel(5, 6, 5, 9, demangledName=99, shortName=99),
            kernel(7, 8, 5, 9, demangledName="inline"),
        ],
        "NVTX_EVENTS": [
            nvtx(PUSH_POP, 1, 2, 5, text="inline", textId=None),
            nvtx(PUSH_POP, 1, 2, 5, text=None, textId=2),
            nvtx(PUSH_POP, 1, 2, 5, text=None, textId=99),
        ],
    }
    read = read_export(write_export(tmp_path / "r.sqlite", tables, keyed=keyed))
    assert [e.name for e in read.cat("cuda_runtime")] == ["a call", "call", "inline"]
    assert [e.name for e in read.cat("kernel")] == ["by id", "short", "kernel", "inline"]
    assert [e.name for e in read.cat("nvtx")] == ["inline", "by id", "(no text)"]


def test_without_global_pid_the_only_process_is_meant(tmp_path: Path) -> None:
    tables = {
        "StringIds": strings("cudaLaunchKernel", "k", "k"),
        RUNTIME: [call(-3000, -500, 0, 100)],
        KERNEL: [kernel(0, 1000, None, 100)],
    }
    read = read_export(write_export(tmp_path / "r.sqlite", tables))
    assert [(s.start, f.start, f.pid) for s, f in read.arrows()] == [(-3000, 0, "0 GPU 0")]
    assert read.damage == []


def test_without_global_pid_two_processes_join_nothing_and_it_is_told(tmp_path: Path) -> None:
    tables = two_processes()
    tables[KERNEL] = [kernel(3000, 6000, None, 77), kernel(3100, 6200, None, 77)]
    read = read_export(write_export(tmp_path / "r.sqlite", tables))
    assert read.arrows() == []
    assert [k.pid for k in read.cat("kernel")] == ["GPU 0", "GPU 0"]
    assert read.notes() == [
        ("unread", "2 activities do not say which of several processes is theirs: no arrows")
    ]


def test_calls_that_share_a_correlation_id_launch_nothing_and_it_is_told(tmp_path: Path) -> None:
    tables = two_processes()
    tables[RUNTIME] = [call(1000, 1500, 111, 77), call(1600, 1700, 111, 77), call(1100, 1600, 112, 77)]
    read = read_export(write_export(tmp_path / "r.sqlite", tables))
    assert [s.pid for s, _ in read.arrows()] == [112]
    assert read.notes() == [("unread", "1 correlation ids of several calls of one process: no arrows")]


def test_processes_of_two_machines_are_kept_apart(tmp_path: Path) -> None:
    tables = two_processes()
    tables[RUNTIME] = [call(1000, 1500, 111, 77), call(1100, 1600, 111, 77, globalTid=gtid(111, 111, 2))]
    tables[KERNEL] = [kernel(3000, 6000, 111, 77), kernel(3100, 6200, 111, 77, globalPid=gpid(111, 2))]
    read = read_export(write_export(tmp_path / "r.sqlite", tables))
    assert [(s.pid, s.start, f.pid, f.start) for s, f in read.arrows()] == [
        (111, 1000, "111 GPU 0", 3000),
        ("111 on machine 2", 1100, "111 on machine 2 GPU 0", 3100),
    ]


def test_copies_sets_graphs_and_waits(tmp_path: Path) -> None:
    none = 0xFFFF_FFFF
    tables = {
        "StringIds": strings("cudaGraphLaunch", "k", "k"),
        RUNTIME: [call(1, 2, 5, 10)],
        MEMCPY: [
            activity(10, 20, 5, 1, copyKind=1, srcKind=0, dstKind=2, bytes=4096),
            activity(20, 30, 5, 2, copyKind=99, srcKind=None, dstKind=None, bytes=1),
        ],
        MEMSET: [activity(30, 40, 5, 3, memKind=2, bytes=64, value=0)],
        GRAPH: [activity(50, 60, 5, 10, graphId=4, graphExecId=6)],
        KERNEL: [kernel(51, 52, 5, 10, graphNodeId=1), kernel(53, 54, 5, 10, graphNodeId=2)],
        SYNC: [
            activity(70, 80, 5, 10, device=3, syncType=3, eventId=none),
            activity(70, 80, 5, 10, streamId=none, syncType=4),
            activity(70, 80, 5, 10, syncType=2, eventId=6),
            activity(70, 80, 5, 10, syncType=2, eventId=none),
        ],
    }
    read = read_export(write_export(tmp_path / "r.sqlite", tables))
    assert [(e.cat, e.name, e.pid, e.tid, e.args.get("bytes")) for e in read.of("X")] == [
        ("cuda_runtime", "cudaGraphLaunch", 5, 5, None),
        ("kernel", "k", "5 GPU 0", 7, None),
        ("kernel", "k", "5 GPU 0", 7, None),
        ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", "5 GPU 0", 7, 4096),
        ("gpu_memcpy", "Memcpy kind 99", "5 GPU 0", 7, 1),
        ("gpu_memset", "Memset (Device)", "5 GPU 0", 7, 64),
        ("cuda_graph", "CUDA graph 4", "5 GPU 0", 7, None),
        ("cuda_sync", "Stream sync", 5, "CUDA sync stream 7", None),
        ("cuda_sync", "Context sync", 5, "CUDA sync", None),
        ("cuda_sync", "Stream wait event", 5, "CUDA sync stream 7", None),
        ("cuda_sync", "Stream sync", 5, "CUDA sync stream 7", None),
    ]
    # One launch, three things that it had done; waiting is none of them.
    assert sorted((s.start, f.start) for s, f in read.arrows()) == [(1, 50), (1, 51), (1, 53)]


def test_nvtx_ranges_marks_domains_categories_and_payloads(tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "StringIds": strings("slime", "trainer", "forward", "python"),
        "NVTX_EVENTS": [
            nvtx(DOMAIN, 0, None, 5, domainId=1, textId=1),
            nvtx(DOMAIN, 0, None, 6, domainId=1, text="other"),
            nvtx(CATEGORY, 0, None, 5, domainId=1, category=2, textId=2),
            nvtx(THREAD, 0, None, 5, text="loader"),
            nvtx(PUSH_POP, 100, 200, 5, domainId=1, category=2, textId=3, int64Value=3, color=255),
            nvtx(PUSH_POP, 100, 200, 6, domainId=1, category=2, text="x", doubleValue=0.5),
            nvtx(PUSH_POP, 100, 200, 5, domainId=0, text="y", uint64Value=(1 << 63) - 1),
            nvtx(
                START_END, 150, 250, 5, domainId=1, text="free", endGlobalTid=gtid(5, 8), jsonText='{"a": 1}'
            ),
            nvtx(START_END, 150, None, 5, domainId=0, text="open"),
            nvtx(MARK, 160, None, 5, domainId=1, text="here"),
            nvtx(76, 0, None, 5, domainId=1),
            nvtx(99, 0, None, 5, domainId=1, text="stream name"),
        ],
    }
    read = read_export(write_export(tmp_path / "r.sqlite", tables))
    assert [(e.ph, e.name, e.pid, e.tid, e.start, e.dur, e.args) for e in read.cat("nvtx")] == [
        (
            "X",
            "forward",
            5,
            5,
            100,
            100,
            {"domain": "slime", "category": "trainer", "payload": 3, "color": "#000000ff"},
        ),
        ("X", "x", 6, 6, 100, 100, {"domain": "other", "category": 2, "payload": 0.5}),
        ("X", "y", 5, 5, 100, 100, {"payload": (1 << 63) - 1}),
        (
            "X",
            "free",
            5,
            "slime ranges",
            150,
            100,
            {"domain": "slime", "payload": '{"a": 1}', "ended on thread": 8},
        ),
        ("X", "open", 5, "NVTX ranges", 150, 100, {"open": True}),
        ("i", "here", 5, 5, 160, None, {"domain": "slime"}),
    ]
    assert read.names()[5, 5] == "loader (5)"
    assert read.notes() == [("unread", "1 rows of NVTX_EVENTS of type 99 are not read")]


def test_phases_of_a_report(tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "TARGET_INFO_SESSION_START_TIME": session(),
        "NVTX_EVENTS": [
            nvtx(DOMAIN, 0, None, 5, domainId=1, text="slime"),
            nvtx(PUSH_POP, -100, 200, 5, domainId=1, text="forward", int64Value=3),
            nvtx(START_END, 150, None, 5, domainId=1, text="generate"),
            nvtx(MARK, 160, None, 5, domainId=1, text="here", doubleValue=1.5),
            nvtx(PUSH_POP, 100, 200, 5, domainId=0, text="elsewhere"),
        ],
    }
    path = write_export(tmp_path / "r.sqlite", tables)
    assert list(nsys_phases(path, "slime")) == [
        NsysPhase(5, "forward", 3, BASE_NS - 100, BASE_NS + 200, "slime"),
        NsysPhase(5, "generate", None, BASE_NS + 150, None, "slime"),
        NsysPhase(5, "here", None, BASE_NS + 160, BASE_NS + 160, "slime"),
    ]
    assert len(list(nsys_phases(path))) == 4


def test_rows_beside_a_thread(tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "StringIds": strings("read", "sqlite", "flush", "cudnnFind", "cublasGemm"),
        "OSRT_API": [call(10, 20, 5, 0, name=1)],
        "PROFILER_OVERHEAD": [{"start": 1, "end": 2, "globalTid": gtid(5, 9), "nameId": 3}],
        "CUDNN_EVENTS": [{"start": 3, "end": 4, "globalTid": gtid(5, 9), "nameId": 4}],
        "CUBLAS_EVENTS": [{"start": 5, "end": 6, "globalTid": gtid(5, 9), "nameId": 5}],
        "COMPOSITE_EVENTS": [{"id": 1, "start": 5}, {"id": 2, "start": 6}],
        "GPU_METRICS": [{"timestamp": 5, "value": 1}],
        "ENUM_NSYS_EVENT_TYPE": [{"id": 59, "name": "NvtxPushPopRange"}],
        "EXPORT_META_DATA": [
            {"name": "EXPORT_SCHEMA_VERSION", "value": "3.0.0"},
            {"name": "EXPORT_HOST", "value": "secret"},
        ],
    }
    read = read_export(write_export(tmp_path / "r.sqlite", tables))
    assert [(e.cat, e.name, e.tid) for e in read.of("X")] == [
        ("cudnn", "cudnnFind", 9),
        ("cublas", "cublasGemm", 9),
        ("os_runtime", "read", "5 OS runtime"),
        ("profiler_overhead", "flush", "9 profiler overhead"),
    ]
    assert read.names()[5, "5 OS runtime"] == "thread 5 · OS runtime"
    assert read.trace.header.metadata == {"nsys_schema": "3.0.0"}
    assert read.notes() == [
        ("unread", "2 rows of COMPOSITE_EVENTS are not read"),
        ("unread", "1 rows of GPU_METRICS are not read"),
    ]
