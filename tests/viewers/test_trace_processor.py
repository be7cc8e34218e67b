"""The harness itself: good traces load clean, and what Perfetto loses or refuses is seen."""

from __future__ import annotations

import gzip
import json

import pytest


def _slice(name, ts, dur, pid=1, tid=1, **args):
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": args}


def _write(path, events):
    # Perfetto shows \\u escapes in a process name as they stand, so none are written.
    path.write_text(json.dumps({"traceEvents": events}, ensure_ascii=False))
    return path


def test_clean_trace_answers_and_has_no_error_rows(perfetto, tmp_path):
    trace = _write(
        tmp_path / "clean.json",
        [
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "actor rank 0 · cpu"}},
            _slice("train_step", 10, 100, rollout=3, note="Übergang"),
            _slice("optimizer", 20.001, 30.5),
        ],
    )
    names, args, empty, errors = perfetto.query(
        trace,
        "select s.name, s.ts, s.dur, s.depth, p.name as process from slice s "
        "join thread_track t on s.track_id = t.id join thread using (utid) "
        "join process p using (upid) order by s.ts",
        "select key, int_value, string_value from args where flat_key like 'args.%' order by key",
        "select * from slice where name = 'absent'",
    )
    assert names == [
        {"name": "train_step", "ts": 10_000, "dur": 100_000, "depth": 0, "process": "actor rank 0 · cpu"},
        {"name": "optimizer", "ts": 20_001, "dur": 30_500, "depth": 1, "process": "actor rank 0 · cpu"},
    ]
    assert args == [
        {"key": "args.note", "int_value": None, "string_value": "Übergang"},
        {"key": "args.rollout", "int_value": 3, "string_value": None},
    ]
    assert empty == []
    assert errors == []


def test_values_come_back_exactly(perfetto, tmp_path):
    trace = _write(tmp_path / "one.json", [_slice("a", 0, 1)])
    row, _errors = perfetto.query(
        trace,
        "select 9223372036854775807 as top, -1 as minus, 0.5 as half, null as none, x'00ff' as raw, "
        "'' as empty",
    )
    assert row == [
        {"top": 2**63 - 1, "minus": -1, "half": 0.5, "none": None, "raw": "00ff", "empty": ""},
    ]


def test_many_rows_come_back_in_order(perfetto, tmp_path):
    count = 20_000  # several batches of trace_processor's answer
    trace = _write(tmp_path / "many.json", [_slice(f"n{i % 7}", 2 * i, 1) for i in range(count)])
    rows, errors = perfetto.query(trace, "select name, ts from slice order by ts")
    assert rows == [{"name": f"n{i % 7}", "ts": 2000 * i} for i in range(count)]
    assert errors == []


def test_compressed_trace_is_read(perfetto, tmp_path):
    path = tmp_path / "clean.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": [_slice("a", 1, 2)]}).encode()))
    rows, errors = perfetto.query(path, "select name from slice")
    assert rows == [{"name": "a"}]
    assert errors == []


def test_slices_that_cross_are_seen_as_an_import_error(perfetto, tmp_path):
    trace = _write(tmp_path / "crossing.json", [_slice("a", 0, 10), _slice("b", 5, 5.001)])
    rows, errors = perfetto.query(trace, "select name from slice")
    assert rows == [{"name": "a"}]
    assert [(e["name"], e["severity"], e["value"]) for e in errors] == [
        ("slice_drop_overlapping_complete_event", "error", 1)
    ]


def test_flow_ids_that_collide_are_seen_as_an_import_error(perfetto, tmp_path):
    events = []
    for pid in (1, 2):
        events += [_slice("forward", 0, 10, pid=pid, tid=1), _slice("backward", 20, 10, pid=pid, tid=2)]
        common = {"name": "fwdbwd", "cat": "fwdbwd", "id": 7, "pid": pid}
        events += [
            {**common, "ph": "s", "ts": 1, "tid": 1},
            {**common, "ph": "f", "bp": "e", "ts": 21, "tid": 2},
        ]
    _rows, errors = perfetto.query(_write(tmp_path / "flows.json", events), "select 1")
    assert [e["name"] for e in errors] == ["flow_duplicate_id"]


@pytest.mark.parametrize("content", ['{"traceEvents": [{"ph": "X", "name": "a", "ts": 1', "not a trace"])
def test_trace_that_cannot_be_loaded_raises(perfetto, tmp_path, content):
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(Exception, match=r"trace_processor: .*(incomplete|Unknown trace type)"):
        perfetto.query(path, "select 1")


def test_statement_that_fails_raises_and_is_named(perfetto, tmp_path):
    trace = _write(tmp_path / "one.json", [_slice("a", 0, 1)])
    with pytest.raises(Exception, match="in: select nonsense from slice"):
        perfetto.query(trace, "select nonsense from slice")


def test_one_program_answers_for_many_traces_and_a_bad_one_stays_alone(perfetto, tmp_path):
    good = _write(tmp_path / "good.json", [_slice("a", 0, 1), _slice("b", 5, 1)])
    bad = tmp_path / "bad.json"
    bad.write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1')
    crossing = _write(tmp_path / "crossing.json", [_slice("a", 0, 10), _slice("c", 5, 10)])
    answers = perfetto.query_each([good, bad, crossing, good], "select name from slice order by ts")
    assert answers[0] == answers[3] == ([{"name": "a"}, {"name": "b"}], [])
    assert "incomplete" in str(answers[1])
    rows, errors = answers[2]
    assert [row["name"] for row in rows] == ["a"]
    assert [row["name"] for row in errors] == ["slice_drop_overlapping_complete_event"]
