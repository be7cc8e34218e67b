"""What can be left out: of traces and of a run, alone and together, on the command line."""

import json

import command_line
import pytest
from reading import Merged
from traces import end_of_arrow, joined, merge, names, op, write_trace

from slime_profiler_plugin.merge import MergeOptions, MergeUsageError, merge_run, parse_options
from slime_profiler_plugin.testing import MS, write_synthetic_run


def events():
    """An op that launches a short and one that launches a long kernel, a mark, a counter."""
    yield op("launch short", 1000, 20)
    yield op("launch long", 2000, 30)
    yield op("short", 3000, 2, pid=0, tid=7, cat="kernel")
    yield op("long", 4000, 5000, pid=0, tid=7, cat="kernel,gpu")
    for number, (launch, kernel) in enumerate(((1000, 3000), (2000, 4000))):
        yield end_of_arrow("s", number, launch)
        yield end_of_arrow("f", number, kernel, pid=0, tid=7)
    yield {"ph": "i", "s": "t", "name": "mark", "cat": "note me", "ts": 1500, "pid": 1, "tid": 1}
    yield {"ph": "C", "name": "bytes", "ts": 1500, "pid": 1, "tid": 1, "args": {"v": 1}}


@pytest.fixture
def trace(tmp_path):
    return write_trace(tmp_path / "rank0.json", list(events()))


@pytest.mark.parametrize(
    ("options", "slices", "arrows", "dropped"),
    [
        ({}, ["launch short", "launch long", "short", "long"], 2, {}),
        (
            {"category": "kernel"},
            ["short", "long"],
            0,
            {"of a category that was not asked for": 4, "arrow of a slice that was not asked for": 4},
        ),
        ({"category": "gpu"}, ["long"], 0, None),
        ({"category": "kernel, cpu_op"}, ["launch short", "launch long", "short", "long"], 2, None),
        (
            {"min_duration": "10us"},
            ["launch short", "launch long", "long"],
            1,
            {"shorter than asked for": 1, "arrow of a slice that was not asked for": 2},
        ),
        ({"min_duration": "20us"}, ["launch short", "launch long", "long"], 1, None),
        ({"min_duration": "20.001us"}, ["launch long", "long"], 1, None),
        (
            {"window": "0.0009:0.0021"},  # from the first start on
            ["launch long", "short"],
            0,
            {"outside the window asked for": 4, "arrow of a dropped slice": 4},
        ),
        ({"window": "0:0.0021"}, ["launch short", "launch long", "short"], 1, None),
        ({"category": "kernel", "min_duration": "1ms", "window": "0:1"}, ["long"], 0, None),
        ({"ranks": "0-3"}, ["launch short", "launch long", "short", "long"], 2, {}),
    ],
)
def test_what_is_left_of_a_trace(tmp_path, trace, options, slices, arrows, dropped):
    chosen = parse_options(**options)
    report, merged = merge([trace], tmp_path / "out.json", **_given(chosen))
    assert names(merged) == slices
    assert len(joined(merged)) == arrows == report.outputs[0].counts.get("arrows", 0)
    assert len({e["id"] for e in merged.events if e["ph"] in "sf"}) == arrows
    if dropped is not None:
        assert report.outputs[0].total.dropped == dropped


def _given(options):
    fields = ("ranks", "roles", "categories", "min_duration_ns", "window_ns")
    return {name: getattr(options, name) for name in fields}


def test_window_keeps_a_long_slice_with_an_arrow_whose_end_lies_before_it(tmp_path):
    made = [
        op("long", 0, 10_000),
        op("kernel", 8000, 10, tid=7),
        end_of_arrow("s", 1, 100),
        end_of_arrow("f", 1, 8000, tid=7),
    ]
    report, merged = merge(
        [write_trace(tmp_path / "a.json", made)], tmp_path / "o.json", window_ns=(7_000_000, 9_000_000)
    )
    assert joined(merged) == [("long", "kernel")]
    assert report.outputs[0].total.dropped == {}


def test_ranks_and_roles_choose_files_and_say_what_is_left_out(tmp_path):
    for rank in range(4):
        write_trace(tmp_path / f"rank{rank}.json", [op(f"op{rank}", 10, 5)])
    report, merged = merge([tmp_path], tmp_path / "out" / "o.json", ranks=frozenset({1, 3}))
    assert names(merged) == ["op1", "op3"]
    assert [path.rsplit("/")[-1] for path in report.left_out] == ["rank0.json", "rank2.json"]
    done = command_line.run("merge", tmp_path, "-o", tmp_path / "x.json", "--roles", "engine")
    assert done.exit_code == 1
    assert "nothing to merge: no process is of role engine; none says its role" in done.stderr
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"category": "phase"},
        {"min_duration": "100ms"},
        {"window": "0.2:0.3"},
        {"ranks": "0"},
        {"roles": "actor"},
        {"roles": "actor,engine", "category": "phase", "min_duration": "5ms", "window": "0:1", "ranks": "1"},
    ],
    ids=" ".join,
)
def test_what_is_left_of_a_run(tmp_path, options):
    made = write_synthetic_run(tmp_path)
    chosen = parse_options(**options)
    whole = Merged(merge_run([made.folder], 0, tmp_path / "whole.json").outputs[0].path)
    report = merge_run([made.folder], 0, tmp_path / "out.json", options=chosen)
    (output,) = report.outputs
    output.total.check()
    merged = Merged(output.path)
    merged.assert_valid()
    expected = []
    for event in whole.events:
        if event["ph"] != "X":
            continue
        start, length = (round(float(event[key]) * 1000) for key in ("ts", "dur"))
        process = whole.processes[event["pid"]]
        role, rank = process.split()[0], process.split()[2 if process.startswith("actor") else 1]
        takes = chosen.takes(role, int(rank) if rank.isdigit() else None)
        takes &= chosen.categories is None or event["cat"] in chosen.categories
        takes &= length >= chosen.min_duration_ns
        window = chosen.window_ns
        if window is not None and window[0] > 0:  # from what is there in all
            takes &= start <= window[1] and start + length >= window[0]
        elif window is not None:
            takes &= start <= window[1]
        if takes:
            expected.append((process, event["name"], length))
    found = [
        (merged.processes[e["pid"]], e["name"], round(float(e["dur"]) * 1000))
        for e in merged.events
        if e["ph"] == "X"
    ]
    assert sorted(found) == sorted(expected)
    for letter in "sf":
        ids = {e["id"] for e in merged.events if e["ph"] == letter}
        assert ids == {e["id"] for e in merged.events if e["ph"] in "sf"}
    for source in output.sources:
        source.check()


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--ranks", "a"),
        ("--ranks", "5-3"),
        ("--ranks", ""),
        ("--min-duration", "5"),
        ("--min-duration", "fast"),
        ("--window", "3"),
        ("--window", "5:4"),
        ("--window", "a:b"),
        ("--budget-mb", "-1"),
        ("--jobs", "x"),
        ("--rollout", "3"),
        ("--attempt", "1"),
    ],
)
def test_bad_values_are_told_in_a_line_and_nothing_is_written(tmp_path, trace, flag, value):
    out = tmp_path / "out.json"
    done = command_line.run("merge", trace, "-o", out, flag, value)
    assert done.exit_code == 2
    assert flag.lstrip("-") in done.stderr or flag in done.stderr
    assert done.stdout == ""
    if not done.stderr.startswith("Usage"):
        assert len(done.stderr.splitlines()) == 1
    assert not out.exists()


def test_flags_reach_the_merge(tmp_path, trace):
    out = tmp_path / "out.json"
    done = command_line.run(
        "merge", trace, "-o", out, "--category", "kernel", "--min-duration", "1ms", "--jobs", "1", "--json"
    )
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert told["outputs"][0]["total"]["dropped"]["shorter than asked for"] == 1
    assert names(Merged(out)) == ["long"]


@pytest.mark.parametrize("text", ["0,1,", "1--2", "-1", "1;2"])
def test_ranks_that_are_none(text):
    with pytest.raises(MergeUsageError):
        parse_options(ranks=text)


def test_options_take_what_they_say():
    assert MergeOptions().takes(None, None)
    assert not MergeOptions(ranks=frozenset({1})).takes("actor", None)
    assert parse_options(window="1.5:").window_ns == (1500 * MS, 2**61)
