"""Traces of every kind of event: what the report counts is what Perfetto shows, without an import error."""

import json
import random

import pytest

from slime_profiler_plugin.merge import MergeOptions, merge_traces

_BASE = 1_785_620_044_000_000
#: Slices on threads; marks are slices without length there.
_SLICES = "select count(*) as n from slice s join thread_track t on s.track_id = t.id where s.dur != 0"
_ARROWS = "select count(*) as n from flow"
_ASYNC = "select name, ts, dur from slice where name like 'async%' order by ts, name"
_COUNTERS = "select t.name, value from counter join track t on t.id = track_id order by t.name, ts"


def _write(path, events):
    for event in events:
        if "ts" in event:
            event["ts"] += _BASE
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def _mixture(rng, count):
    """Random slices that cross, begins and ends, arrows of every shape, marks, counters, objects."""
    events = []
    for _ in range(count):
        place = {"pid": rng.choice([1, "1", -1, "x"]), "tid": rng.choice([1, "2", 2, "y"])}
        common = {**place, "ts": rng.randrange(200), "name": rng.choice("abc"), "cat": rng.choice(["k", "m"])}
        letter = rng.choice("XXXXBBEsstffffiRIC")
        if letter == "X":
            common["dur"] = rng.randrange(1, 40)
            if rng.random() < 0.1:
                common.update(bind_id=rng.randrange(4), **{rng.choice(["flow_in", "flow_out"]): True})
        elif letter in "stf":
            common["id"] = rng.choice([rng.randrange(6), "0x1", "2"])
            common["name"] = rng.choice(["arrow", "arrow", "other"])
            if letter == "f" and rng.random() < 0.7:
                common["bp"] = "e"
        elif letter == "i":
            common["s"] = "p"  # a mark of a thread would be a slice on its track
        elif letter == "C":
            common["args"] = rng.choice([{"v": 1}, {"v": "much"}, {"v": True, "w": 2.5}, {}, {"v": None}])
        if letter in "RI":
            common["s"], letter = "g", "i"
        events.append({"ph": letter, **common})
    return events


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min_duration_ns": 9_000},
        {"window_ns": (50_000, 120_000)},
        {"categories": frozenset({"k"})},
        {"budget_bytes": 30_000},
    ],
    ids=lambda options: next(iter(options), "all"),
)
def test_counts_of_the_report_are_what_perfetto_shows(perfetto, tmp_path, seed, options):
    rng = random.Random(seed)
    paths = [_write(tmp_path / f"rank{n}.json", _mixture(rng, 250)) for n in range(2)]
    report = merge_traces(paths, tmp_path / "out.json", MergeOptions(jobs=1, **options))
    (output,) = report.outputs
    slices, arrows, errors = perfetto.query(output.path, _SLICES, _ARROWS)
    assert errors == []
    written = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    long = sum(e["ph"] == "X" and e["dur"] > 0 for e in written)
    short = sum(e["ph"] == "X" and e["dur"] == 0 for e in written)
    assert (slices[0]["n"], long + short) == (long, output.counts["slices"])
    assert arrows[0]["n"] == output.counts.get("arrows", 0) > 0


@pytest.mark.parametrize("letters", ["bne", "STF", "SpF"])
def test_async_events_of_old_and_new_form_are_shown(perfetto, tmp_path, letters):
    common = {"pid": 1, "tid": 1, "cat": "c", "id": "0x5"}
    first, middle, last = letters
    events = [
        {**common, "ph": first, "name": "async", "ts": 10},
        {**common, "ph": middle, "name": "async middle", "ts": 15, "args": {"step": "half"}},
        {**common, "ph": last, "name": "async", "ts": 30},
    ]
    paths = [_write(tmp_path / f"{n}.json", [dict(e) for e in events]) for n in "ab"]
    output = merge_traces(paths, tmp_path / "out.json", MergeOptions(jobs=1)).outputs[0]
    shown, errors = perfetto.query(output.path, _ASYNC)
    assert errors == []
    assert [(s["name"], s["ts"], s["dur"]) for s in shown] == [
        *[("async", 0, 20_000)] * 2,
        *[("async middle", 5_000, 0)] * 2,
    ]
    what = {"async event of the old form, written in the new one": 6}
    assert output.mended == ({} if letters == "bne" else what)


def test_async_tracks_are_told_apart_by_scope_and_process(perfetto, tmp_path):
    def pair(ts, **more):
        for letter, at in (("b", ts), ("e", ts + 10)):
            yield {"ph": letter, "name": f"async {ts}", "cat": "c", "pid": 1, "tid": 1, "ts": at, **more}

    events = [
        *pair(0, id=1),
        *pair(5, id=2),  # crosses the first
        *pair(20, id2={"local": 1}),
        *pair(25, id2={"local": 1}, pid=2),
        *pair(40, id2={"global": 1}, scope="one"),
        *pair(45, id2={"global": 1}, scope="two", pid=2),
        *pair(60),  # no id at all
        *pair(65, tid=2),
    ]
    output = merge_traces(
        [_write(tmp_path / "a.json", events)], tmp_path / "out.json", MergeOptions(jobs=1)
    ).outputs[0]
    shown, errors = perfetto.query(output.path, _ASYNC)
    assert errors == []
    assert [(s["ts"], s["dur"]) for s in shown] == [
        (at * 1000, 10_000) for at in (0, 5, 20, 25, 40, 45, 60, 65)
    ]


def test_counters_of_no_numbers_load_clean_and_what_is_none_is_counted(perfetto, tmp_path):
    values = [{"v": 1, "w": "2.5"}, {"v": "much", "w": 3}, {"v": None}, "text", {"v": {"deep": 1}}, {}]
    events = [
        {"ph": "C", "name": "c", "pid": 1, "tid": 1, "ts": 10 + n, "args": args}
        for n, args in enumerate(values)
    ]
    events.append({"ph": "C", "name": "c", "pid": 1, "tid": 1, "ts": 50})
    output = merge_traces(
        [_write(tmp_path / "a.json", events)], tmp_path / "out.json", MergeOptions(jobs=1)
    ).outputs[0]
    shown, errors = perfetto.query(output.path, _COUNTERS)
    assert errors == []
    assert [(s["name"], s["value"]) for s in shown] == [("c v", 1.0), ("c w", 2.5), ("c w", 3.0)]
    assert (output.total.read, sum(output.mended.values())) == (7, 6)


def test_every_letter_is_written_or_named_and_loads_clean(perfetto, tmp_path):
    letters = "XBEiIRCbnesTSpFtfMPNODcvV(),=Z"
    events = [
        {
            "ph": letter,
            "name": letter,
            "cat": "c",
            "id": 1,
            "pid": 1,
            "tid": 1,
            "ts": 10 + n,
            "dur": 1000,
            "bp": "e",
        }
        for n, letter in enumerate(letters)
    ]
    events += [{"name": "none", "ts": 50}, {"ph": "X", "name": "no time", "dur": 1}]
    output = merge_traces(
        [_write(tmp_path / "a.json", events)], tmp_path / "out.json", MergeOptions(jobs=1)
    ).outputs[0]
    _, errors = perfetto.query(output.path, _SLICES)
    assert errors == []
    total = output.total
    assert total.read == len(events)
    assert (total.described, total.joined) == (1, 1)
    assert total.dropped == {"event without a phase letter": 1, "event without a time": 1}
    assert total.written == len(letters) - 2
