"""Inputs that once made an output that no viewer takes, or none at all."""

import json
import os
import resource

import pytest
from command_line import run
from reading import load

from slime_profiler_plugin.merge import MergeError, MergeOptions, _archive, merge_traces
from slime_profiler_plugin.testing import write_synthetic_run

BASE = 1751328000000000000


def write(path, *events, **top):
    path.write_text(json.dumps({"baseTimeNanoseconds": BASE, **top, "traceEvents": list(events)}))
    return path


def op(**fields):
    return {"ph": "X", "name": "op", "pid": 1, "tid": 1, "ts": 5, "dur": 1, **fields}


def merge(tmp_path, *events, **options):
    source = write(tmp_path / "rank0.json", *events)
    report = merge_traces([source], tmp_path / "o.json", MergeOptions(jobs=1, **options))
    written = [event for event in load(tmp_path / "o.json")["traceEvents"] if event["ph"] != "M"]
    return report, written


@pytest.mark.parametrize("value", [None, "x", {}, [1], True])
def test_thread_time_that_is_no_number_is_kept_beside(tmp_path, value):
    report, (event,) = merge(tmp_path, op(tts=value, tdur=3))
    assert "tts" not in event
    assert (event["tts_as_read"], event["tdur"]) == (value, 3)
    assert report.outputs[0].mended == {"time of a thread's clock that is no number, kept beside it": 1}


@pytest.mark.parametrize("value", [5, 7.25, -1, "12", "1.5"])
def test_thread_time_that_is_a_number_stays(tmp_path, value):
    report, (event,) = merge(tmp_path, op(tts=value))
    assert event["tts"] == (str(value) if isinstance(value, float) else value)
    assert report.outputs[0].mended == {}


@pytest.mark.parametrize("args", [[1], [], "x", None, 5])
def test_args_that_are_no_object_are_kept_beside_what_is_added(tmp_path, args):
    report, (event,) = merge(tmp_path, {"ph": "B", "name": "b", "pid": 1, "tid": 1, "ts": 1, "args": args})
    assert (event["args"], event["args_as_read"]) == ({"unclosed": True}, args)
    assert report.outputs[0].mended["args that are no object, kept beside others"] == 1


def test_args_of_an_end_that_are_no_object_are_kept_too(tmp_path):
    begin = {"ph": "B", "name": "b", "pid": 1, "tid": 1, "ts": 1, "args": {"a": 1}}
    _, (event,) = merge(tmp_path, begin, {"ph": "E", "pid": 1, "tid": 1, "ts": 3, "args": [2]})
    assert (event["args"], event["args_of_end_as_read"], event["dur"]) == ({"a": 1}, [2], "2.0")


def test_asynchronous_event_of_the_old_form_with_several_letters(tmp_path):
    _, (event,) = merge(tmp_path, {"ph": "Sx", "name": "a", "cat": "c", "id": 1, "pid": 1, "tid": 1, "ts": 1})
    assert event["ph"] == "b"


def test_length_beyond_the_clock_is_dropped_as_such(tmp_path):
    for length in (9223372036854775, 9223372036854776, 1e18, 1e300):
        report, (event,) = merge(tmp_path, op(dur=length), op(ts=6))
        assert event["dur"] == "1.0" or event["dur"] == 1
        assert report.outputs[0].total.dropped == {"event at a time beyond the clock": 1}


def test_name_of_a_file_that_is_not_utf8(tmp_path):
    path = os.fsencode(tmp_path) + b"/rank3_\xff.json"
    with open(path, "w") as file:
        json.dump({"baseTimeNanoseconds": BASE, "traceEvents": [op()]}, file)
    report = merge_traces([os.fsdecode(path)], tmp_path / "o.json", MergeOptions(jobs=1))
    assert report.outputs[0].events == 1
    assert load(tmp_path / "o.json")["slime_profiler_merge"]["sources"][0]["file"] == "rank3_?.json"


def test_default_output_replaces_only_what_a_merge_wrote(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "rank0.json", op())
    default = tmp_path / "merged.trace.json.gz"
    default.write_text("precious")
    refused = run("merge", "rank0.json")
    assert (refused.exit_code, default.read_text()) == (2, "precious")
    assert "is here already, and not of a merge" in refused.stderr
    default.unlink()
    assert run("merge", "rank0.json").exit_code == 0
    assert run("merge", "rank0.json").exit_code == 0


def test_filter_that_leaves_nothing_is_warned_of(tmp_path):
    report, events = merge(tmp_path, op(), window_ns=(10**9, 2 * 10**9))
    assert events == []
    assert report.warnings == ["o.json: no event is of what was asked for"]
    with pytest.raises(MergeError, match="no event to merge: none is of what was asked for"):
        merge(tmp_path, op(), categories=frozenset({"none"}))


def test_run_that_lies_deeper_in_a_folder_is_named(tmp_path):
    made = write_synthetic_run(tmp_path / "deep" / "runs")
    write(tmp_path / "deep" / "x.json", op())
    result = run("merge", tmp_path / "deep", "-o", tmp_path / "o.json", "--json")
    assert [told for told in json.loads(result.stdout)["ignored"] if str(made.folder) in told]


def test_trace_beside_a_run_that_lies_elsewhere_in_time_is_warned_of(tmp_path):
    made = write_synthetic_run(tmp_path)
    far = write(tmp_path / "far.json", op())
    result = run("merge", made.folder, far, "-o", tmp_path / "o.json")
    assert f"warning: {far}: nothing of it lies in the time of o.json" in result.stdout


def test_full_disk_is_told_by_the_name_of_the_output(tmp_path):
    source = write(tmp_path / "rank0.json", *(op(ts=n) for n in range(1, 30_000)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            merge_traces([source], tmp_path / "o.json", MergeOptions(jobs=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.filename == str(tmp_path / "o.json")
    assert [path.name for path in tmp_path.iterdir()] == ["rank0.json"]


def test_archive_that_cannot_be_written_makes_the_merge_partial(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_archive, "write_archive", fail)
    report, _ = merge(tmp_path, op(), archive=True)
    assert report.exit_code() == 3
    assert report.outputs[0].archive_failed == f"{tmp_path / 'o.zip'}: No space left on device"


def test_world_that_is_too_large_is_not_believed(tmp_path):
    paths = [
        write(tmp_path / f"r{rank}.json", op(), distributedInfo={"rank": rank, "world_size": 10**9})
        for rank in (0, 1)
    ]
    report = merge_traces(paths, tmp_path / "o.json", MergeOptions(jobs=1))
    assert report.warnings == ["rank: a world of 1000000000 ranks is not believed: none is missing"]
