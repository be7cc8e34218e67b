"""Archives: the sources as they are, and a manifest that pins them to one clock."""

import gzip
import json
import zipfile

import command_line
from reading import Merged, ns
from traces import BASE_US, merge, op, write_trace

from slime_profiler_plugin.clock import decimal_us_to_ns
from slime_profiler_plugin.merge import MergeOptions, merge_run
from slime_profiler_plugin.read.kineto import read_event_pieces
from slime_profiler_plugin.testing import MS, write_synthetic_run, write_trace_window

ROLLOUT_0 = (5_000_000 + 310) * MS


def opened(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {info.filename: archive.read(info) for info in archive.infolist()}


def manifest_of(members):
    (name, *_) = members
    assert name == "perfetto_manifest.json"
    return json.loads(members[name])["perfetto_manifest"]


def first_ts(content):
    text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    slices = [e for e in json.loads(text, parse_float=str)["traceEvents"] if e["ph"] == "X"]
    return {e["name"]: ns(e["ts"]) for e in slices}


def test_members_are_the_files_and_offsets_bring_them_together(tmp_path):
    absolute = write_trace(tmp_path / "rank0.json", [op("a", 500, 5)])
    based = tmp_path / "rank1.json.gz"
    # Its times count from a moment 3 s before the other's 0.
    events = [{**op("b", 0, 5), "ts": 3_000_250.5}]
    text = json.dumps({"traceEvents": events, "baseTimeNanoseconds": (BASE_US - 3_000_000) * 1000})
    based.write_bytes(gzip.compress(text.encode(), mtime=0))
    report, merged = merge([tmp_path], tmp_path / "out" / "o.json.gz", archive=True)
    path = report.outputs[0].archive
    assert path == str(tmp_path / "out" / "o.zip")
    members = opened(path)
    assert list(members) == ["perfetto_manifest.json", "0000-rank0.json", "0001-rank1.json.gz"]
    assert members["0000-rank0.json"] == absolute.read_bytes()
    assert members["0001-rank1.json.gz"] == based.read_bytes()
    manifest = manifest_of(members)
    assert manifest["version"] == 1
    files = manifest["files"]
    assert [each["path"] for each in files] == list(members)[1:]
    assert [each["machine"]["name"] for each in files] == ["rank 0", "rank 1"]
    assert "clocks" not in files[0]
    assert files[1]["clocks"]["sync_to"] == {"file": "0000-rank0.json"}
    # A time in a file and the file's offset give the time of the first file.
    (a,) = first_ts(members["0000-rank0.json"]).values()
    (b,) = first_ts(members["0001-rank1.json.gz"]).values()
    shown = {e["name"]: ns(e["ts"]) for e in merged.events}
    assert b + files[1]["clocks"]["offset_ns"] - a == shown["b"] - shown["a"] == -249_500


def test_archive_is_the_same_each_time_and_leaves_nothing_beside_it(tmp_path):
    for name in ("rank0.json", "rank1.json"):
        write_trace(tmp_path / name, [op(name, 5, 5)])
    written = set()
    for _ in range(2):
        report, _ = merge([tmp_path], tmp_path / "out" / "o.json", archive=True)
        written.add((tmp_path / "out" / "o.zip").read_bytes())
    assert len(written) == 1
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["o.json", "o.zip"]
    report, _ = merge([tmp_path / "rank0.json"], tmp_path / "out" / "p.json")
    assert report.outputs[0].archive is None


def test_sources_of_unknown_clock_stand_in_the_archive_as_in_the_trace(tmp_path):
    write_trace(tmp_path / "rank0.json", [{**op("a", 0, 5), "ts": 5000.0}])
    write_trace(tmp_path / "rank1.json", [{**op("b", 0, 5), "ts": 9e9}])
    report, _ = merge([tmp_path], tmp_path / "out" / "o.json", archive=True)
    members = opened(report.outputs[0].archive)
    files = manifest_of(members)["files"]
    (a,) = first_ts(members["0000-rank0.json"]).values()
    (b,) = first_ts(members["0001-rank1.json"]).values()
    assert b + files[1]["clocks"]["offset_ns"] == a


def test_archive_of_a_run_holds_its_records_as_a_trace_and_its_windows_as_they_are(tmp_path):
    made = write_synthetic_run(tmp_path)
    at = ROLLOUT_0 + 5 * MS + 3
    event = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "pid": 200,
        "tid": 200,
        "ts_ns": at,
        "dur_ns": 50,
    }
    window = write_trace_window(tmp_path, made.trainers[0], [0], [event])
    report = merge_run([made.folder], 0, tmp_path / "o.json", options=MergeOptions(archive=True))
    (output,) = report.outputs
    members = opened(output.archive)
    names = list(members)
    assert names == ["perfetto_manifest.json", "0000-phases.trace.json.gz", f"0001-{window.name}"]
    assert members[names[2]] == window.read_bytes()
    manifest = manifest_of(members)
    assert manifest["attributes"] == {"slime_profiler.run_id": "synthetic", "slime_profiler.rollouts": "0"}
    assert manifest["files"][0]["machine"]["name"] == "run synthetic"
    (tmp_path / "phases.json.gz").write_bytes(members[names[1]])
    phases, whole = Merged(tmp_path / "phases.json.gz"), Merged(output.path)
    assert [e["name"] for e in phases.events] == [e["name"] for e in whole.events if e["name"] != "aten::mm"]
    assert [e["ts"] for e in phases.events] == [e["ts"] for e in whole.events if e["name"] != "aten::mm"]
    offset = manifest["files"][1]["clocks"]["offset_ns"]
    ((only,),) = read_event_pieces(window, [])
    assert decimal_us_to_ns(bytes(only.ts)) + offset + output.base_ns == at


def test_what_an_archive_cannot_hold_is_told(tmp_path):
    trace = write_trace(tmp_path / "in" / "rank0.json", [op("a", 5, 5)])
    with zipfile.ZipFile(tmp_path / "rank1.zip", "w") as packed:
        packed.writestr("rank1.json", trace.read_text())
    done = command_line.run(
        "merge", trace, tmp_path / "rank1.zip", "-o", tmp_path / "o.json", "--archive", "--jobs", "1"
    )
    assert done.exit_code == 0
    assert "o.zip" in done.stdout
    assert list(opened(tmp_path / "o.zip")) == ["perfetto_manifest.json", "0000-rank0.json"]
    assert "not in the archive: rank1.zip" in done.stdout
