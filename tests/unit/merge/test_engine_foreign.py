"""Traces of anyone's into one: names, clocks, ranks, and the same bytes whatever the order and the jobs."""

import itertools
import json
import random
import zipfile

import command_line
import pytest
from reading import Merged
from traces import BASE_US, end_of_arrow, merge, names, op, write_trace

from slime_profiler_plugin.merge import MergeError, MergeOptions, MergeUsageError, format_report, merge_traces
from slime_profiler_plugin.merge._naming import name_traces
from slime_profiler_plugin.read import Owner, TraceFile, TraceHeader

DAY_US = 24 * 3600 * 10**6


def large(seed, count=12_000):
    rng = random.Random(seed)
    for n in range(count):
        at = rng.randrange(10**7)
        yield op(f"op {n} of {seed}", at, rng.randrange(50), tid=rng.randrange(3), args={"text": "x" * 60})
        if n % 3 == 0:
            yield end_of_arrow("sf"[n % 2], rng.randrange(500), at)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Three ranks of over 2 MB each, so that workers are used."""
    folder = tmp_path_factory.mktemp("ranks")
    paths = [write_trace(folder / f"rank{n}.json", list(large(n))) for n in range(3)]
    assert sum(path.stat().st_size for path in paths) > 5 << 20
    return paths


def test_bytes_are_the_same_for_any_order_any_jobs_and_twice(tmp_path, ranks):
    out = tmp_path / "out.json.gz"
    written = set()
    for number, order in enumerate(itertools.permutations(ranks)):
        merge_traces(order, out, MergeOptions(jobs=(1, 2, 3)[number % 3]))
        written.add(out.read_bytes())
        assert [p.name for p in tmp_path.iterdir()] == ["out.json.gz"]
    merge_traces([ranks[0].parent], out, MergeOptions(jobs=2))  # over what is there
    written.add(out.read_bytes())
    assert len(written) == 1


def test_workers_do_not_change_what_filters_leave(tmp_path, ranks):
    options = {"min_duration_ns": 10_000, "budget_bytes": 10**6, "window_ns": (10**9, 5 * 10**9)}
    for jobs in (1, 2):
        merge(ranks, tmp_path / f"{jobs}.json", jobs=jobs, **options)
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "2.json").read_bytes()


def starts(merged):
    base = merged.top.get("baseTimeNanoseconds", 0)
    return {e["name"]: round(float(e["ts"]) * 1000) + int(base) for e in merged.events}


def test_wall_clocks_place_traces_to_the_nanosecond(tmp_path):
    write_trace(tmp_path / "rank0.json", [{**op("a", 0, 1), "ts": float(BASE_US)}])
    relative = [{**op("b", 0, 1), "ts": 12.345}]
    base_ns = BASE_US * 1000
    (tmp_path / "rank1.json").write_text(
        json.dumps({"traceEvents": relative, "baseTimeNanoseconds": base_ns})
    )
    report, merged = merge([tmp_path], tmp_path / "out" / "o.json")
    assert starts(merged) == {"a": base_ns, "b": base_ns + 12_345}
    assert {each.clock for each in report.inputs} == {"wall clock"}
    assert report.warnings == []


def unknown(path, first):
    return write_trace(path, [{**op(path.stem, 0, 100), "ts": float(first)}])


def test_unknown_clocks_that_overlap_stay_as_they_are(tmp_path):
    paths = [unknown(tmp_path / "rank0.json", 5000), unknown(tmp_path / "rank1.json", 5050)]
    report, merged = merge(paths, tmp_path / "o.json")
    assert starts(merged) == {"rank0": 0, "rank1": 50_000}
    assert "baseTimeNanoseconds" not in merged.top
    assert len(report.warnings) == 1
    assert "no wall clock in rank0.json, rank1.json" in report.warnings[0]
    assert all("clock unknown" in name for name in merged.processes.values())


def test_unknown_clocks_far_apart_all_begin_at_the_start(tmp_path):
    paths = [unknown(tmp_path / "rank0.json", 5000), unknown(tmp_path / "rank1.json", 9_000_000)]
    report, merged = merge(paths, tmp_path / "o.json")
    assert starts(merged) == {"rank0": 0, "rank1": 0}
    assert "they stand at the start" in report.warnings[0]


def test_unknown_clock_beside_a_known_one_begins_with_it_and_is_named(tmp_path):
    known = write_trace(tmp_path / "rank0.json", [op("known", 7, 1)])
    report, merged = merge([unknown(tmp_path / "rank1.json", 123), known], tmp_path / "o.json")
    assert starts(merged) == dict.fromkeys(("known", "rank1"), (BASE_US + 7) * 1000)
    assert [each.clock for each in report.inputs] == ["wall clock", "clock unknown"]
    assert "no wall clock in rank1.json" in report.warnings[0]


def test_a_single_trace_of_unknown_clock_needs_no_warning(tmp_path):
    report, merged = merge([unknown(tmp_path / "a.json", 400)], tmp_path / "o.json")
    assert report.warnings == []
    assert starts(merged) == {"a": 0}


def test_traces_days_apart_are_merged_and_told(tmp_path):
    paths = [
        write_trace(tmp_path / "rank0.json", [op("a", 0, 1)]),
        write_trace(tmp_path / "rank1.json", [{**op("b", 0, 1), "ts": BASE_US + 3 * DAY_US}]),
    ]
    report, merged = merge(paths, tmp_path / "o.json")
    assert report.warnings == ["rank0.json and rank1.json lie 3.0 days apart"]
    assert starts(merged)["b"] - starts(merged)["a"] == 3 * DAY_US * 1000


def ranked(path, rank, size, name="op"):
    return write_trace(
        path,
        [op(f"{name}{rank}", 10, 5)],
        distributedInfo={"rank": rank, "world_size": size},
        schemaVersion=1,
    )


def test_missing_ranks_are_labelled_processes_and_exit_code_3(tmp_path):
    ranked(tmp_path / "a.json", 0, 4)
    ranked(tmp_path / "b.json", 2, 4)
    report, merged = merge([tmp_path], tmp_path / "out" / "o.json")
    missing = [name for name in merged.processes.values() if name.endswith("missing")]
    assert missing == ["rank 1 · missing", "rank 3 · missing"]
    assert "rank: 2 of 4 ranks seen; missing rank 1, 3" in [note["name"] for note in merged.notes]
    assert report.exit_code() == 3
    assert report.exit_code(allow_partial=True) == 0
    assert any("missing rank 1, 3" in line for line in format_report(report))
    report, merged = merge([tmp_path], tmp_path / "out" / "o.json", ranks=frozenset({0, 2}))
    assert (report.exit_code(), merged.notes) == (0, [])


def test_one_trace_is_not_asked_for_the_other_ranks(tmp_path):
    report, merged = merge([ranked(tmp_path / "a.json", 1, 8)], tmp_path / "o.json")
    assert (report.exit_code(), merged.notes) == (0, [])


def test_a_base_of_zero_or_one_damaged_time_is_no_wall_clock(tmp_path):
    (tmp_path / "rank0.json").write_text(
        json.dumps({"baseTimeNanoseconds": 0, "traceEvents": [op("a", 5, 1)]})
    )
    events = [{**op("b", 5, 1), "ts": ts} for ts in (5, 6, 1_751_328_000_000_000)]
    (tmp_path / "rank1.json").write_text(json.dumps(events))
    report, _ = merge([tmp_path / "rank0.json", tmp_path / "rank1.json"], tmp_path / "o.json")
    assert [each.clock for each in report.inputs] == ["clock unknown"] * 2


def test_files_of_one_rank_are_all_kept_told_apart_and_told(tmp_path):
    paths = [ranked(tmp_path / folder / "trace.json", 0, 2, folder) for folder in ("x", "y")]
    report, merged = merge([*paths, ranked(tmp_path / "rank1.json", 1, 2)], tmp_path / "o.json")
    assert sorted(names(merged)) == ["op1", "x0", "y0"]
    assert set(merged.processes.values()) == {"rank 0 · x · pid 1", "rank 0 · y · pid 1", "rank 1 · pid 1"}
    told = "2 files say they are rank 0: x/trace.json, y/trace.json; all are kept"
    assert told in report.warnings


def test_names_of_files_of_one_rank_hold_what_tells_them_apart_and_no_more(tmp_path):
    for files, shown in (
        (("a/x/t.json", "b/x/t.json"), ("a/x/t.json", "b/x/t.json")),
        (("t.json", "t.json.gz"), ("t.json", "t.json.gz")),
        (("step1.json", "step2.json"), ("step1", "step2")),
    ):
        header = TraceHeader({}, [], None, [], {})
        traces = [TraceFile(tmp_path / name, "kineto", header, Owner(rank=0)) for name in files]
        assert name_traces(traces) == [f"rank 0 · {told}" for told in shown]


def test_no_file_at_all_is_said(tmp_path):
    with pytest.raises(MergeError, match="nothing to merge: no file was found"):
        merge_traces([tmp_path])


def test_output_is_never_one_of_the_inputs(tmp_path):
    path = write_trace(tmp_path / "rank0.json", [op("a", 0, 1)])
    (tmp_path / "link.json").symlink_to(path)
    before = path.read_bytes()
    for out in (path, tmp_path / "link.json"):
        with pytest.raises(MergeUsageError, match="one of the files to merge"):
            merge_traces([path], out)
    done = command_line.run("merge", path, "-o", path)
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert path.read_bytes() == before


def test_archive_is_never_one_of_the_inputs(tmp_path):
    trace = write_trace(tmp_path / "in" / "rank0.json", [op("a", 0, 1)])
    packed = tmp_path / "out.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(trace, "rank1.json")
    before = packed.read_bytes()
    with pytest.raises(MergeUsageError, match="one of the files to merge"):
        merge_traces([trace, packed], tmp_path / "out.json", MergeOptions(archive=True))
    assert packed.read_bytes() == before


def test_default_name_a_folder_and_what_is_merged_already(tmp_path, monkeypatch):
    write_trace(tmp_path / "rank0.json", [op("a", 0, 1)])
    monkeypatch.chdir(tmp_path)
    first = merge_traces([tmp_path]).outputs[0]
    assert first.path == "merged.trace.json.gz"
    again = merge_traces([tmp_path])  # which finds the merged one and takes it for no source
    assert names(Merged(tmp_path / "merged.trace.json.gz")) == ["a"]
    assert [line.split(" (")[0].rsplit("/")[-1] for line in again.ignored] == ["merged.trace.json.gz"]
    assert again.exit_code() == 0
    into = merge_traces([tmp_path / "rank0.json"], tmp_path / "new" / "folder").outputs[0]
    assert into.path == str(tmp_path / "new" / "folder" / "merged.trace.json.gz")


def test_a_merged_trace_that_is_named_is_refused_by_name(tmp_path):
    path = write_trace(tmp_path / "rank0.json", [op("a", 0, 1)])
    merged = tmp_path / "merged.json"
    merge([path], merged)
    with pytest.raises(MergeError, match="a merged timeline of slime-profiler"):
        merge_traces([merged], tmp_path / "x.json")
    report, _ = merge([path, merged], tmp_path / "y.json")
    assert report.exit_code() == 3
    assert [d.kind for d in report.damage] == ["refused"]


def test_numbers_that_no_double_holds_pass_through_names_and_joined_args(tmp_path):
    deep = "[" * 3000 + "]" * 3000
    at = f'"pid":1,"tid":{"7" * 40},"cat":"c","name":"b"'
    (tmp_path / "a.json").write_text(
        '{"traceEvents":['
        '{"ph":"M","name":"thread_sort_index","pid":1,"tid":1,"args":{"sort_index":1e999}},'
        f'{{"ph":"M","name":"process_name","pid":1,"args":{{"name":{deep}}}}},'
        f'{{"ph":"B",{at},"ts":{BASE_US}.5,"args":{{"first":1e999,"both":1}}}},'
        f'{{"ph":"E",{at},"ts":{BASE_US + 3},"args":{{"both":2,"last":123456789012345678901234567890}}}}]}}'
    )
    report, merged = merge([tmp_path / "a.json"], tmp_path / "o.json")
    (event,) = merged.events
    assert (event["dur"], event["args"]["first"], event["args"]["both"]) == ("2.5", "1e999", 2)
    assert event["args"]["last"] == 123456789012345678901234567890
    assert report.outputs[0].total.joined == 1
