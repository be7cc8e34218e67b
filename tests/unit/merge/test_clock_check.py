"""Phases of a report against those of the records."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_profiler_plugin.merge._clock_check import (
    RecordedPhase,
    check_clock,
    format_clock_check,
    recorded_phases,
)
from slime_profiler_plugin.read import read_run
from slime_profiler_plugin.read.nsys import NsysPhase
from slime_profiler_plugin.testing import ProcessFile


def seen(name: str, start: int, rollout: int | None = 3, pid: int = 9, domain: str = "slime") -> NsysPhase:
    return NsysPhase(pid, name, rollout, start, start + 5, domain)


def told(name: str, start: int, rollout: int | None = 3, pid: int = 9) -> RecordedPhase:
    return RecordedPhase(pid, name, rollout, start)


def test_only_the_same_phase_matches() -> None:
    report = [
        seen("forward", 110),
        seen("forward", 210, rollout=4),
        seen("forward", 310, pid=8),
        seen("forward", 400, domain="other"),
    ]
    records = [
        told("forward", 100),
        told("forward", 200, rollout=4),
        told("forward", 300, pid=7),
        told("backward", 100),
    ]
    check = check_clock(report, records)
    assert check == (2, 10, 10, 1, 2, 0, None)


def test_order_within_does_not_depend_on_the_order_of_the_tables() -> None:
    report = [seen("forward", 210), seen("forward", 110)]
    records = [told("forward", 100), told("forward", 200)]
    assert check_clock(report, records)[:3] == (2, 10, 10)


def test_marks_tell_the_offset_of_our_clock() -> None:
    report = [
        seen("slime.clock unix_ns=1000 mono_ns=5", 1057, rollout=50),
        seen("slime.clock unix_ns=2000 mono_ns=1005", 2009, rollout=None),
    ]
    check = check_clock(report, [])
    assert check == (0, None, None, 0, 0, 2, 7)
    assert format_clock_check(check) == (
        "clock check: no phase is in report and records; our clock in the report: +0.0 µs (2 marks)"
    )


def test_a_capture_of_the_middle_is_matched_by_the_marks() -> None:
    """Every kind is uneven: only the mark tells that the report's clock is an hour ahead."""
    hour = 3_600_000_000_000
    starts = [n * 1_000_000 for n in range(100)]
    report = [seen("train_step", start + hour + 30) for start in starts[40:60]]
    report.append(seen(f"slime.clock unix_ns={starts[39]} mono_ns=1", starts[39] + hour, rollout=0))
    check = check_clock(report, [told("train_step", start) for start in starts])
    assert check == (20, hour + 30, hour + 30, 0, 80, 1, hour)


def test_a_report_with_more_than_the_records() -> None:
    """The recorder was killed: its last period is missing."""
    report = [seen("train_step", n * 1000 + 7) for n in range(10)]
    records = [told("train_step", n * 1000) for n in range(6)]
    assert check_clock(report, records)[:5] == (6, 7, 7, 4, 0)


@given(
    st.lists(st.integers(0, 10**12), unique=True, min_size=1, max_size=30),
    st.lists(st.integers(0, 10**12), unique=True, min_size=1, max_size=30),
)
def test_every_phase_is_matched_once_at_most(report: list[int], records: list[int]) -> None:
    check = check_clock([seen("p", s) for s in report], [told("p", s) for s in records])
    assert check.matched == min(len(report), len(records))
    assert check.matched + check.unmatched_in_report == len(report)
    assert check.matched + check.unmatched_in_records == len(records)


@pytest.mark.parametrize(("unmatched", "says"), [((0, 0), ""), ((2, 0), "; 2 only in the report")])
def test_the_line_names_only_what_there_is(unmatched: tuple[int, int], says: str) -> None:
    report = [seen("p", 1010), *[seen("q", 0) for _ in range(unmatched[0])]]
    line = format_clock_check(check_clock(report, [told("p", 1000)]))
    assert line == (
        f"clock check: 1 phases are in report and records, +0.0 µs apart (median), 0.0 µs at most{says}"
    )


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("node1", ["on node1"]),
        ("NODE2.cluster.example", ["on node2", "alone"]),
        (None, ["alone"]),  # pid 7 is that of two hosts
        ("a container", ["alone"]),
    ],
)
def test_equal_pids_of_several_hosts_are_not_mixed(
    tmp_path: Path, host: str | None, names: list[str]
) -> None:
    for node, pid, name in (("node1", 7, "on node1"), ("node2", 7, "on node2"), ("node2", 8, "alone")):
        process = ProcessFile("r", pid=pid, role="actor", rank=pid, host=node, clock_domain=node)
        process.clock(0)
        process.phase(name, 100, 200, rollout=0)
        process.clock(1000)
        process.write(tmp_path)
    found = recorded_phases(read_run([tmp_path / "r"]), {7, 8}, host)
    assert sorted(phase.name for phase in found) == sorted(names)
