"""Every source of a folder is found once; what is none is told with its reason."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from slime_profiler_plugin.read import discover
from slime_profiler_plugin.testing import ProcessFile, write_trace_window

EVENT = {"ph": "X", "name": "op", "pid": 7, "tid": 7, "ts": 1, "dur": 1}
TRACE = json.dumps({"schemaVersion": 1, "traceEvents": [EVENT]})
MERGED = json.dumps({"slime_profiler_merge": {}, "traceEvents": [EVENT]})


def below(root, paths):
    return [str(path.relative_to(root)) for path in paths]


def write(root, files):
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_sources_of_a_folder_are_found_at_any_depth_in_order(tmp_path):
    write(tmp_path, {"b/rank1.json": TRACE, "a/deep/rank0.json": TRACE, "c.pt.trace.json": TRACE})
    found = discover([tmp_path])
    assert below(tmp_path, [t.path for t in found.traces]) == [
        "a/deep/rank0.json",
        "b/rank1.json",
        "c.pt.trace.json",
    ]
    assert (found.runs, found.skipped, found.damage) == ([], [], [])


def test_what_is_no_source_is_skipped_with_its_reason(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    write(
        tmp_path,
        {
            "merged.trace.json": MERGED,
            "notes.md": "words",
            "graph.json": '{"schema": "1", "nodes": []}',
            "ray.json": "[]",
            "x.trace.json.tmp": TRACE,
            ".out.json.x7.tmp/phases.trace.json": TRACE,
        },
    )
    found = discover([tmp_path])
    reasons = {path.name: reason for path, reason in found.skipped}
    assert reasons.keys() == {
        "pipe",
        "gone",
        "merged.trace.json",
        "notes.md",
        "graph.json",
        "ray.json",
        "x.trace.json.tmp",
        ".out.json.x7.tmp",
    }
    assert "merged timeline" in reasons["merged.trace.json"]
    assert "execution trace" in reasons["graph.json"]
    assert "no events" in reasons["ray.json"]
    assert "link to nothing" in reasons["gone"]
    assert (found.traces, found.damage) == ([], [])


def test_what_should_be_a_trace_by_its_name_is_damage(tmp_path):
    write(tmp_path, {"a.trace.json": "{", "b.pt.trace.json": "", "c.json": "{"})
    found = discover([tmp_path])
    assert [(Path(one.file).name, one.kind) for one in found.damage] == [
        ("a.trace.json", "refused"),
        ("b.pt.trace.json", "refused"),
    ]
    assert [path.name for path, _ in found.skipped] == ["c.json"]


@pytest.mark.parametrize("content", [MERGED, "words", "[]", ""])
def test_a_file_that_was_named_and_is_no_trace_is_damage(tmp_path, content):
    write(tmp_path, {"a.json": content})
    found = discover([tmp_path / "a.json", tmp_path / "absent"])
    assert [(Path(one.file).name, one.kind) for one in found.damage] == [
        ("a.json", "refused"),
        ("absent", "refused"),
    ]
    assert found.skipped == []


def test_each_file_counts_once_and_links_do_not_lead_in_circles(tmp_path):
    write(tmp_path, {"a/rank0.json": TRACE})
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "same.json").symlink_to(tmp_path / "a" / "rank0.json")
    os.link(tmp_path / "a" / "rank0.json", tmp_path / "hard.json")
    found = discover([tmp_path / "a" / "rank0.json", tmp_path, str(tmp_path / "a"), tmp_path / "same.json"])
    assert below(tmp_path, [t.path for t in found.traces]) == ["a/rank0.json"]
    assert found.damage == []


def test_which_name_of_a_file_is_used_does_not_depend_on_the_order(tmp_path):
    write(tmp_path, {"b/rank0.json": TRACE, "words": "words"})
    (tmp_path / "a.json").symlink_to(tmp_path / "b" / "rank0.json")
    (tmp_path / "a").symlink_to(tmp_path / "b")
    os.link(tmp_path / "words", tmp_path / "b" / "more words")
    for paths, name in (
        ([tmp_path], "b/rank0.json"),
        ([tmp_path, tmp_path / "a"], "b/rank0.json"),
        ([tmp_path / "a.json", tmp_path / "b"], "a.json"),
        ([tmp_path / "a.json", tmp_path / "b" / "rank0.json"], "b/rank0.json"),
    ):
        for order in (paths, paths[::-1]):
            assert below(tmp_path, [trace.path for trace in discover(order).traces]) == [name]
    for order in ([tmp_path, tmp_path / "words"], [tmp_path / "words", tmp_path]):
        found = discover(order)
        assert ([one.kind for one in found.damage], found.skipped) == (["refused"], [])


def test_folders_nest_as_deeply_as_they_may(tmp_path):
    folder = tmp_path / "/".join("d" * 900)
    folder.mkdir(parents=True)
    write(folder, {"rank0.json": TRACE})
    assert len(discover([tmp_path]).traces) == 1


def test_run_folders_are_listed_apart_and_not_looked_into(tmp_path):
    process = ProcessFile("r1", pid=7, role="actor", rank=1, epoch_ns=1_790_857_026_000_000_000)
    write_trace_window(tmp_path / "out", process, [3], [{"ph": "X", "name": "a", "ts_ns": 1}])
    write(tmp_path, {"traces/rank0.json": TRACE, "out/other.json": TRACE})
    found = discover([tmp_path])
    assert below(tmp_path, found.runs) == ["out/r1"]
    assert below(tmp_path, [t.path for t in found.traces]) == ["out/other.json", "traces/rank0.json"]


def test_two_engines_with_one_profile_id_are_both_found(tmp_path):
    write(tmp_path, {f"engine{n}/run1-TP-0.trace.json": TRACE for n in (0, 1)})
    found = discover([tmp_path])
    assert [(t.format, t.owner.profile_id, t.path.parent.name) for t in found.traces] == [
        ("sglang", "run1", "engine0"),
        ("sglang", "run1", "engine1"),
    ]


def test_a_report_that_was_exported_is_read_once(tmp_path):
    write(tmp_path, {"a.nsys-rep": "x", "a.sqlite": "x"})
    found = discover([tmp_path])
    assert dict(found.skipped)[tmp_path / "a.nsys-rep"] == "exported already: a.sqlite"
