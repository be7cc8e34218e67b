"""The traces that the benchmark of merging generates are what it says they are, and it runs."""

from __future__ import annotations

import gzip
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from merged_trace import count_crossings, ns, parse_strictly
from test_benchmarks import run

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from _cost import FailedError, measure
from _traces import LAYOUTS, Shape, write_trace


@pytest.fixture(scope="module", params=LAYOUTS)
def written(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("generated") / "rank3.json.gz"
    counts = write_trace(path, 3, Shape(5_000, 8, layout=request.param))
    return counts, gzip.decompress(path.read_bytes())


def test_counts_are_those_of_the_file(written):
    counts, text = written
    trace = parse_strictly(text)
    phases = Counter(event["ph"] for event in trace["traceEvents"])
    assert (phases["X"], phases["s"], phases["i"]) == (counts.slices, counts.arrows, counts.instants)
    assert phases["s"] == phases["f"]
    assert sum(phases.values()) == counts.events == 5_000 + phases["M"]
    assert len(text) == counts.text_bytes
    assert trace["distributedInfo"]["rank"] == 3


def test_slices_nest_but_for_the_crossings(written):
    counts, text = written
    tracks = defaultdict(list)
    for event in parse_strictly(text)["traceEvents"]:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((ns(event["ts"]), -ns(event["dur"])))
    assert sum(count_crossings(tracks).values()) == pytest.approx(counts.crossings, rel=0.05)
    assert counts.crossings == pytest.approx(0.01 * counts.slices, rel=0.05)


def test_no_crossings_when_none_are_wanted(tmp_path):
    path = tmp_path / "plain.json"
    counts = write_trace(path, 0, Shape(2_000, crossings=0))
    tracks = defaultdict(list)
    for event in parse_strictly(path.read_bytes())["traceEvents"]:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((ns(event["ts"]), -ns(event["dur"])))
    assert count_crossings(tracks) == {}
    assert counts.crossings == 0


def test_a_seed_gives_the_same_file_and_another_one_another(tmp_path):
    texts = []
    for number, (rank, seed) in enumerate([(0, 0), (0, 0), (1, 0), (0, 1)]):
        path = tmp_path / f"{number}.json"
        write_trace(path, rank, Shape(300, seed=seed))
        texts.append(path.read_text())
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


def test_the_cost_of_children_counts():
    spin = "sum(i * i for i in range(3_000_000))"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])"
    grown = "data = bytearray(60_000_000); import time; time.sleep(0.3)"
    cost = measure([sys.executable, "-c", f"{child}; {grown}"])
    alone = measure([sys.executable, "-c", spin])
    assert cost.cpu_s > 0.7 * alone.cpu_s
    assert 60 < cost.pss_mb <= cost.rss_mb < 200


def test_a_program_that_fails_is_no_cost():
    with pytest.raises(FailedError, match="no such thing"):
        measure([sys.executable, "-c", "raise SystemExit('no such thing')"])


def test_the_benchmark_of_merging_runs(tmp_path):
    small = ["--events", "300", "--ranks", "2", "--big-mb", "1", "--many", "2,4", "--data", str(tmp_path)]
    printed = run("merge.py", *small, "--only", "ours,stdlib,floor,big,many")
    for row in (
        "ours, jobs",
        "json, gzip 6",
        "floor:",
        "the CPU of the floor",
        "within the bound",
        "ms a rank",
    ):
        assert row in printed
    assert not list(tmp_path.glob("out-*"))
