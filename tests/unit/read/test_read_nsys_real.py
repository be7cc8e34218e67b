"""Exports that Nsight Systems itself has made."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from nsys_events import read_export

from slime_profiler_plugin.read.nsys import nsys_phases

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("SLIME_PROFILER_SHARED", ROOT.parent / "shared"))
#: Of 2022.4, schema 3.0.0; made by tests/viewers/update_nsys_data.py.
PROGRAM = ROOT / "tests" / "data" / "nsys_program.sqlite"


def shared(name: str) -> Path:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return path


def test_the_phases_of_our_own_program() -> None:
    phases = list(nsys_phases(PROGRAM, "slime"))
    clock, *others = phases
    assert clock.name.startswith("slime.clock unix_ns=")
    assert [(p.name, p.rollout) for p in others] == [
        *[("train_step", 3), ("forward_backward", 3), ("optimizer", 3)] * 3,
        *[("reward", 3)] * 2,
    ]


def test_all_of_our_own_program() -> None:
    read = read_export(PROGRAM)
    assert read.trace.header.metadata == {"nsys_version": "2022.4.2.1", "nsys_schema": "3.0.0"}
    assert Counter(e.cat for e in read.of("X", "i")) == {
        "nvtx": 12,
        "os_runtime": 100,
        "profiler_overhead": len(read.cat("profiler_overhead")),
    }
    assert {(e.name, e.args["category"]) for e in read.cat("nvtx") if e.ph == "X"} == {
        ("train_step", "trainer"),
        ("forward_backward", "trainer"),
        ("optimizer", "trainer"),
        ("reward", "rollout"),
    }
    assert {e.tid for e in read.cat("nvtx") if e.name == "reward"} == {"slime ranges"}
    assert all(e.dur is not None and e.dur >= 0 for e in read.of("X"))
    assert read.damage == []


def test_nothing_of_the_machine_is_in_it() -> None:
    content = PROGRAM.read_bytes()
    assert len(content) < 100_000
    for word in (b"/home", b"/usr", b"/tmp", b"Hostname", b"HOME", b"root", b"site-packages"):
        at = content.find(word)
        assert at < 0, content[at - 20 : at + 60]


def test_the_case_of_the_absent_tables() -> None:
    read = read_export(shared("bugs/29-nsys-no-nvtx-table/report.sqlite"))
    ((start, end),) = read.arrows()
    assert (start.id, start.start, end.start) == (77, 1000, 3000)
    assert [(e.name, e.start, e.dur) for e in read.of("X")] == [
        ("cudaLaunchKernel_v7000", 1000, 500),
        ("gemm", 3000, 3000),
    ]
    assert read.cat("nvtx") == []
    assert read.damage == []


def test_a_real_export_without_a_gpu() -> None:
    path = shared("traces/nsys_small.sqlite")
    read = read_export(path)
    assert Counter(e.cat for e in read.of("X", "i")) == {
        "nvtx": 11,
        "os_runtime": 327,
        "profiler_overhead": 6,
    }
    (free,) = (e for e in read.cat("nvtx") if e.name == "async_gen")
    assert (free.start, free.dur, free.tid, free.args["payload"]) == (
        300732568,
        311157175 - 300732568,
        "slime ranges",
        9,
    )
    assert [(p.name, p.rollout) for p in nsys_phases(path, "slime") if p.name == "rollout"] == [
        ("rollout", 0),
        ("rollout", 1),
        ("rollout", 2),
    ]
    # The marks say what time it was when they were about to be made.
    for mark in list(nsys_phases(path, "slime"))[:2]:
        late_ns = mark.start_unix_ns - int(mark.name.removeprefix("slime.sync unix_ns="))
        assert 0 < late_ns < 100_000
