"""Inputs with anything wrong in them: a valid file or an error of ours, never another exception."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading import Merged

from slime_profiler_plugin import schema
from slime_profiler_plugin.merge import MergeError, merge_run
from slime_profiler_plugin.read import ReadError
from slime_profiler_plugin.testing import MS, ProcessFile, write_trace_window

START = 1000 * MS


def write_run(folder):
    process = ProcessFile("r", pid=7, role="actor", rank=0, ranks={"tp": 0}, world_size=1)
    phase = process.phase("train_step", START, START + 900, rollout=0, step=1, attrs={"a": [1.5, "x"]})
    process.phase("forward", START + 10, START + 20, rollout=0, parent=phase, task=3)
    process.phase("bucket_send", START + 500, START + 600, rollout=0, sync=1, bucket=0, weight_version="1")
    process.phase(
        "engine_receive", START + 510, START + 610, rollout=0, sync=1, bucket=0, source=process.source
    )
    device = {"device_type": "cuda", "device_index": 0, "stream": 7, "uncertainty_ns": 5}
    process.lines.append(schema.Device(id=phase, start_ns=START + 5, dur_ns=100, **device))
    process.open("optimizer", START + 700, START + 800, rollout=0)
    process.clock(START)
    process.end(START + 1000)
    record = process.write(folder)
    x = {"ph": "X", "pid": 7, "tid": 7, "cat": "cpu_op"}
    events = [
        {"ph": "M", "name": "process_labels", "pid": 7, "tid": 0, "ts_ns": 0, "args": {"labels": "CPU"}},
        x | {"name": "a", "ts_ns": START + 1, "dur_ns": 50, "args": {"External id": 1}},
        x | {"name": "b", "ts_ns": START + 30, "dur_ns": 50},
        {"ph": "s", "id": 1, "pid": 7, "tid": 7, "ts_ns": START + 1, "cat": "ac2g", "name": "ac2g"},
        {
            "ph": "f",
            "id": 1,
            "pid": 7,
            "tid": 7,
            "ts_ns": START + 31,
            "cat": "ac2g",
            "name": "ac2g",
            "bp": "e",
        },
    ]
    return record, write_trace_window(folder, process, [0], events)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    record, window = write_run(tmp_path_factory.mktemp("whole"))
    return record.read_bytes(), gzip.decompress(window.read_bytes())


def merge_or_refuse(folder):
    try:
        report = merge_run([Path(folder) / "r"], "all")
    except (MergeError, ReadError):
        return None
    for output in report.outputs:
        Merged(output.path).assert_valid()
    return report


edits = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 12),
        st.sampled_from(
            [b"", b"-", b"9", b"99999999999999999999", b'"', b"}", b"{", b"[", b"]", b",", b":", b"null"]
        )
        | st.binary(max_size=6),
    ),
    min_size=1,
    max_size=4,
)


def edit(content, changes):
    for at, cut, text in changes:
        place = int(at * len(content))
        content = content[:place] + text + content[place + cut :]
    return content


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(changes=edits, which=st.sampled_from(["record", "window"]))
def test_edited_files_are_merged_or_refused(tmp_path, whole, changes, which):
    record, window = write_run(tmp_path)
    if which == "record":
        record.write_bytes(edit(whole[0], changes))
    else:
        window.write_bytes(edit(whole[1], changes))
    merge_or_refuse(tmp_path)


NUMBERS = [-1, -(2**63), 2**63 - 1, 2**64, 10**30]
VALUES = [*NUMBERS, None, "x", 1.5, [], {}, True]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_record_fields_of_any_value_are_merged_or_refused(tmp_path, whole, value):
    lines = [json.loads(line) for line in whole[0].splitlines()]
    record, _ = write_run(tmp_path)
    for number, fields in enumerate(lines):
        for name in fields:
            if name == "kind":
                continue
            changed = [*lines]
            changed[number] = fields | {name: value}
            record.write_text("\n".join(map(json.dumps, changed)) + "\n")
            merge_or_refuse(tmp_path)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_window_fields_of_any_value_are_merged_or_refused(tmp_path, whole, value):
    top = json.loads(whole[1])
    _, window = write_run(tmp_path)

    def merge_with(changed):
        window.write_text(json.dumps(changed))
        merge_or_refuse(tmp_path)

    for name in top:
        merge_with(top | {name: value})
    for name in top["slime_profiler"]:
        merge_with(top | {"slime_profiler": top["slime_profiler"] | {name: value}})
    for number, event in enumerate(top["traceEvents"]):
        for name in event:
            events = [*top["traceEvents"]]
            events[number] = event | {name: value}
            merge_with(top | {"traceEvents": events})


def test_records_at_impossible_times_are_dropped_by_name(tmp_path):
    process = ProcessFile("r", pid=7, role="actor", rank=0)
    process.phase("good", START, START + 10, rollout=0)
    process.phase("backwards", START + 10, START, rollout=0)
    process.phase("far", 2**63, 2**63 + 5, rollout=0)
    process.phase("before", -10, -5, rollout=0)
    process.end(START + 100)
    process.write(tmp_path)
    report = merge_or_refuse(tmp_path)
    merged = Merged(report.outputs[0].path)
    assert [s[:3] for s in merged.slices()] == [("good", START, START + 10)]
    assert dict(report.outputs[0].total.dropped) == {
        "slice of negative length": 1,
        "event at time 0 or before": 1,
        "event at a time beyond the clock": 1,
    }
