"""Ray's timeline in a run's folder: found, merged where it touches a rollout, refused by name."""

from __future__ import annotations

import gzip
import json
import shutil

import pytest

from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.merge import merge_run
from slime_profiler_plugin.read import read_run
from slime_profiler_plugin.testing import write_synthetic_run


@pytest.fixture
def made(tmp_path):
    return write_synthetic_run(tmp_path / "out")


def task(name, start_ns, dur_ns):
    return {
        "cat": "task:execute",
        "name": name,
        "pid": "127.0.0.1",
        "tid": "worker:0123",
        "ts": start_ns / 1000,
        "dur": dur_ns / 1000,
        "ph": "X",
        "cname": "rail_animation",
        "args": {},
    }


def write(made, events, attempt=0):
    path = RunPaths.at(made.folder).ray_file(attempt, 1_800_000_000_000_000_000)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(events).encode()))
    return path


def place_in(made, rollout):
    """A moment of the rollout, by the wall clock."""
    found = [p for r in read_run([made.folder]).processes for p in r.phases() if p.rollout == rollout]
    process = made.driver.process
    return found[0].start_ns - process.start_ns + process.start_unix_ns


def names(path):
    return {e["name"] for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]}


def test_it_is_found_and_stands_in_the_rollout_that_it_touches(made):
    write(made, [task("train", place_in(made, 0), 1000), task("later", place_in(made, 1), 1000)])
    run = read_run([made.folder])
    assert [(b.attempt, b.trace.format) for b in run.beside] == [(0, "ray")]
    assert run.ignored == []
    report = merge_run([made.folder], 0)
    assert report.exit_code() == 0
    assert [(each.format, each.file) for each in report.inputs] == [("ray", str(run.beside[0].trace.path))]
    told = names(made.folder / "merged" / "rollout_000000.trace.json.gz")
    assert "train" in told
    assert "later" not in told


def test_copies_count_once_and_an_attempt_has_its_own(made, tmp_path):
    write(made, [task("a", place_in(made, 0), 1000)])
    copy = tmp_path / "copy" / made.folder.name
    shutil.copytree(made.folder, copy)
    write(made, [task("b", place_in(made, 0), 1000)], attempt=1)
    run = read_run([made.folder, copy])
    assert [b.attempt for b in run.beside] == [0, 1]
    run.keep_attempt(0)
    assert [b.attempt for b in run.beside] == [0]


def test_what_is_no_trace_is_named_and_costs_nothing_else(made):
    path = write(made, {"neither": "nor"})
    (path.parent / "notes.txt").write_text("mine")
    run = read_run([made.folder])
    assert run.beside == []
    assert [damage.file for damage in run.damage] == [str(path)]
    assert run.ignored == [path.parent / "notes.txt"]
    assert merge_run([made.folder], 0).exit_code() == 3
