"""1,000 phases seen three times: in the record file, in the torch.profiler window, in the merged file."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from decimal import Decimal
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from slime_profiler_plugin import schema
from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.merge import merge_run

PHASES = 1000
RUN_ID = "agreement"
MEDIAN_NS = 20_000
P99_NS = 100_000


class Interval(NamedTuple):
    """Unix ns."""

    name: str
    start: int
    end: int


def record(out: str) -> None:
    """A process of its own: nested phases around small operators, within one window."""
    import torch

    torch.set_num_threads(1)
    config = {"out": out, "profiler": {"activities": ["cpu"], "ranks": "all"}}
    timeline.start(config, run_id=RUN_ID, role="actor", rank=0, world_size=1)
    timeline.set_rollout(0)
    draw = random.Random(7)
    tensor = torch.ones(64)
    left = PHASES

    def phase(depth: int) -> None:
        nonlocal left
        left -= 1
        with timeline.phase(f"phase_{PHASES - left - 1:04d}"):
            tensor.add(1)
            while left and depth < 5 and draw.random() < 0.55:
                phase(depth + 1)
                tensor.add(1)

    while left:
        phase(0)
    timeline.export_window()
    timeline.stop()


def parents(intervals: list[Interval]) -> dict[str, str | None]:
    """Who encloses whom; every interval must lie within its parent or beside it."""
    found: dict[str, str | None] = {}
    stack: list[Interval] = []
    for each in intervals:
        while stack and stack[-1].end <= each.start:
            stack.pop()
        assert not stack or each.end <= stack[-1].end, (each, stack[-1])
        found[each.name] = stack[-1].name if stack else None
        stack.append(each)
    return found


def read_phases(paths: RunPaths) -> list[schema.Phase]:
    (file,) = paths.records.rglob("*.jsonl")
    lines = [schema.decode_line(raw)[0] for raw in file.read_bytes().splitlines()]
    assert [x for x in lines if isinstance(x, schema.Drop)] == []
    phases = [x for x in lines if isinstance(x, schema.Phase) and x.name.startswith("phase_")]
    return sorted(phases, key=lambda p: p.start_ns)


def read_trace(paths: RunPaths) -> tuple[list[Interval], dict[str, Any]]:
    (file,) = paths.traces.rglob("*.gz")
    trace = json.loads(gzip.decompress(file.read_bytes()), parse_float=Decimal)
    base = trace["baseTimeNanoseconds"]
    intervals = []
    for event in trace["traceEvents"]:
        if event.get("cat") == "user_annotation" and event["name"].startswith("phase_"):
            start = base + int(event["ts"] * 1000)
            intervals.append(Interval(event["name"], start, start + int(event["dur"] * 1000)))
    return sorted(intervals, key=lambda i: i.start), trace


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    out = tmp_path_factory.mktemp("agreement")
    process = get_context("spawn").Process(target=record, args=(str(out),))
    process.start()
    process.join()
    assert process.exitcode == 0
    return RunPaths(out, RUN_ID)


def test_the_record_file_agrees_with_the_window(
    paths: RunPaths, record_property: Callable[[str, object], None]
) -> None:
    phases = read_phases(paths)
    theirs, trace = read_trace(paths)
    (start_mono, start_unix, _), (stop_mono, stop_unix, _) = trace["slime_profiler"]["clock_pairs"]
    drift = (stop_unix - start_unix) - (stop_mono - start_mono)

    def unix(mono: int) -> int:
        part = (mono - start_mono) / (stop_mono - start_mono)
        return start_unix + (mono - start_mono) + round(drift * part)

    ours = [Interval(p.name, unix(p.start_ns), unix(p.start_ns + p.dur_ns)) for p in phases]
    assert [i.name for i in ours] == [i.name for i in theirs] == [f"phase_{n:04d}" for n in range(PHASES)]
    by_id = {p.id: p.name for p in phases}
    told = {p.name: None if p.parent is None else by_id.get(p.parent) for p in phases}
    assert parents(ours) == parents(theirs) == told

    differences = sorted(
        (abs(difference), a.name, edge)
        for a, b in zip(ours, theirs, strict=True)
        for edge, difference in (("start", b.start - a.start), ("end", b.end - a.end))
    )
    outliers = [each for each in differences if each[0] >= P99_NS]
    record_property("outliers", outliers)
    assert differences[len(differences) // 2][0] < MEDIAN_NS, outliers
    assert differences[len(differences) * 99 // 100][0] < P99_NS, outliers


def test_the_merged_file_equals_the_record_file_to_the_nanosecond(paths: RunPaths) -> None:
    report = merge_run([paths.root], 0)
    assert report.exit_code() == 0
    (output,) = report.outputs
    merged = json.loads(gzip.decompress(Path(output.path).read_bytes()), parse_float=Decimal)
    ours, theirs = [], []
    for event in merged["traceEvents"]:
        if event["name"].startswith("phase_") and event["ph"] == "X":
            start = output.base_ns + event["ts"] * 1000
            row = event["name"], start, event["dur"] * 1000
            if event["cat"] == "phase":
                ours.append((*row, event["args"]["phase_id"], event["args"].get("parent")))
            else:
                theirs.append(row)
    phases = read_phases(paths)
    assert sorted(ours) == sorted((p.name, p.start_ns, p.dur_ns, p.id, p.parent) for p in phases)
    window, _ = read_trace(paths)
    assert [name for name, *_ in sorted(theirs, key=itemgetter(1))] == [i.name for i in window]
    assert {name: length for name, _, length in theirs} == {i.name: i.end - i.start for i in window}
