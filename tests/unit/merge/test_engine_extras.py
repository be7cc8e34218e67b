"""Traces that others wrote beside a run: what touches a rollout goes into its file, whole."""

import json
import sqlite3
from contextlib import closing

import pytest
from reading import Merged

from slime_profiler_plugin.merge import MergeError, MergeOptions, MergeUsageError, format_report, merge_paths
from slime_profiler_plugin.testing import MS, write_synthetic_run

START = 5_000_000 * MS
#: Rollout 0 and 1 last from here for a second each; the records say when it was.
ROLLOUTS = (START + 310 * MS, START + 1310 * MS)


@pytest.fixture
def made(tmp_path):
    return write_synthetic_run(tmp_path / "runs")


def unix_us(made, mono_ns):
    ns = made.driver.epoch_ns + mono_ns
    return f"{ns // 1000}.{ns % 1000:03d}"


def extra(path, events):
    """A trace on the wall clock; `events` are (name, start, length), the start as text."""
    listed = [
        f'{{"ph":"X","name":"{name}","pid":7,"tid":7,"ts":{start},"dur":{length}}}'
        for name, start, length in events
    ]
    path.write_text('{"traceEvents":[' + ",".join(listed) + "]}")
    return path


def merge(paths, out, rollout, **options):
    report = merge_paths(paths, rollout, out, None, MergeOptions(jobs=1, **options))
    for output in report.outputs:
        output.total.check()
    return report


def test_events_go_into_the_rollouts_they_touch_whole_and_to_the_nanosecond(tmp_path, made):
    events = [
        ("before", unix_us(made, START - 900_000 * MS), 1),
        ("in 0", unix_us(made, ROLLOUTS[0] + 123), 10),
        ("in both", unix_us(made, ROLLOUTS[1] - 100 * MS), 300_000),
        ("in 1", unix_us(made, ROLLOUTS[1] + 500 * MS + 7), 10),
    ]
    trace = extra(tmp_path / "engine.json", events)
    report = merge([made.folder, trace], tmp_path / "out", "all")
    found = {}
    for output in report.outputs:
        merged = Merged(output.path)
        merged.assert_valid()
        own = [s for s in merged.slices() if s[0] in {e[0] for e in events}]
        found[output.rollouts[0]] = {s[0]: (s[1], s[2]) for s in own}
        (ledger,) = [source for source in output.sources if "engine.json" in source.source]
        assert (ledger.read, ledger.written) == (4, len(own))
        assert ledger.other_rollouts == 4 - len(own)
    both = (ROLLOUTS[1] - 100 * MS, ROLLOUTS[1] + 200 * MS)
    assert found[0] == {"in 0": (ROLLOUTS[0] + 123, ROLLOUTS[0] + 10_123), "in both": both}
    assert found[1] == {
        "in both": both,
        "in 1": (ROLLOUTS[1] + 500 * MS + 7, ROLLOUTS[1] + 500 * MS + 10_007),
    }
    (told,) = report.inputs
    assert (told.format, told.clock) == ("chrome", "wall clock")
    assert report.exit_code() == 0


def test_ranks_and_roles_choose_among_them_too(tmp_path, made):
    at = unix_us(made, ROLLOUTS[0])
    engines = [extra(tmp_path / f"p-TP-{n}.trace.json", [(f"e{n}", at, 5)]) for n in (0, 1)]
    trainer = extra(tmp_path / "rank1.json", [("t1", at, 5)])
    for options, found, left_out in (
        ({"roles": {"engine"}}, {"e0", "e1"}, [f"{trainer} (says no role)"]),
        ({"ranks": {1}}, {"e1", "t1"}, [str(engines[0])]),
        ({"roles": {"engine"}, "ranks": {0}}, {"e0"}, [str(engines[1]), f"{trainer} (says no role)"]),
    ):
        chosen = {key: frozenset(value) for key, value in options.items()}
        report = merge([made.folder, *engines, trainer], tmp_path / "out", 0, **chosen)
        assert {s[0] for s in Merged(report.outputs[0].path).slices()} & {"e0", "e1", "t1"} == found
        assert sorted(told for told in report.left_out if str(tmp_path) in told) == sorted(left_out)


def test_a_trace_of_which_nothing_was_asked_for_is_not_said_to_lie_elsewhere(tmp_path, made):
    engine = extra(tmp_path / "p-TP-0.trace.json", [("e", unix_us(made, ROLLOUTS[0]), 5)])
    report = merge([made.folder, engine], tmp_path / "out", 0, categories=frozenset({"phase"}))
    assert report.warnings == []
    report = merge([made.folder, engine], tmp_path / "out", 0, min_duration_ns=6000)
    assert report.warnings == []
    report = merge([made.folder, engine], tmp_path / "out", 1)
    assert report.warnings == [f"{engine}: nothing of it lies in the time of rollout_000001.trace.json.gz"]


def test_only_a_trace_beside_the_run_is_of_the_role(tmp_path, made):
    judge = extra(tmp_path / "judge.json", [("a", unix_us(made, ROLLOUTS[0]), 5)])
    with pytest.raises(MergeError, match="no process is of rank 7; there are: 0 to 1"):
        merge([made.folder, judge], tmp_path / "out", 0, ranks=frozenset({7}))
    seven = judge.rename(tmp_path / "rank7.json")
    report = merge([made.folder, seven], tmp_path / "out", 0, ranks=frozenset({7}))
    assert {s[0] for s in Merged(report.outputs[0].path).slices()} == {"a"}


def test_trace_of_unknown_clock_is_refused_by_name(tmp_path, made):
    trace = extra(tmp_path / "engine.json", [("a", "1000.5", 5)])
    report = merge([made.folder, trace], tmp_path / "out", 0)
    (damage,) = report.damage
    assert (damage.kind, damage.file) == ("refused", str(trace))
    assert "clock is unknown" in damage.reason
    assert report.exit_code() == 3
    assert Merged(report.outputs[0].path).slices(name="a") == []


def test_an_extra_is_never_replaced_by_the_output(tmp_path, made):
    trace = extra(tmp_path / "engine.json", [("a", unix_us(made, ROLLOUTS[0]), 5)])
    before = trace.read_bytes()
    with pytest.raises(MergeUsageError, match="one of the files to merge"):
        merge([made.folder, trace], trace, 0)
    assert trace.read_bytes() == before


def test_choices_of_a_run_without_one_are_a_mistake(tmp_path, made):
    trace = extra(tmp_path / "engine.json", [("a", unix_us(made, ROLLOUTS[0]), 5)])
    with pytest.raises(MergeUsageError, match="no folder of a run is named"):
        merge([trace], tmp_path / "o.json", 0)


def report_of_nsight(path, made, off_ns):
    """An export in which the phases of trainer 0 stand as NVTX ranges, `off_ns` late."""
    process = made.trainers[0]
    base = process.epoch_ns + START
    pid = process.process.pid
    thread = (1 << 48) | (pid << 24) | pid
    phases = [
        line for line in process.lines if getattr(line, "name", "") == "train_step" and line.rollout == 0
    ]
    assert phases
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table TARGET_INFO_SESSION_START_TIME (utcEpochNs, utcTime, localTime)")
        db.execute("insert into TARGET_INFO_SESSION_START_TIME values (?, '', '')", (base,))
        db.execute("create table StringIds (id integer primary key, value)")
        db.execute(
            "create table NVTX_EVENTS (start, end, eventType, globalTid, text, domainId, int64Value, payload)"
        )
        db.execute("insert into NVTX_EVENTS values (0, null, 75, ?, 'slime', 1, null, null)", (thread,))
        for line in phases:
            start = line.start_ns - START + off_ns
            row = (start, start + line.dur_ns, 59, thread, line.name, 1, 0)
            db.execute("insert into NVTX_EVENTS values (?, ?, ?, ?, ?, ?, ?, null)", row)
        db.commit()
    return path, phases


@pytest.mark.parametrize("off_ns", [0, 20_000, -5_000])
def test_report_of_nsight_is_checked_against_the_records(tmp_path, made, off_ns):
    path, phases = report_of_nsight(tmp_path / "report.sqlite", made, off_ns)
    report = merge([made.folder, path], tmp_path / "out", 0)
    (told,) = report.inputs
    assert told.format == "nsys"
    check = told.clock_check
    assert (check["matched"], check["median_ns"], check["max_abs_ns"]) == (len(phases), off_ns, abs(off_ns))
    assert any(f"clock check: {len(phases)} phases" in line for line in format_report(report))
    json.dumps(report.to_builtins())
    merged = Merged(report.outputs[0].path)
    merged.assert_valid()
    shown = [s for s in merged.slices(name="train_step") if s[3] != "MainThread"]
    starts = {line.start_ns + off_ns for line in phases}
    assert starts <= {s[1] for s in shown}
