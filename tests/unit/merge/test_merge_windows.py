"""torch.profiler windows in a merged file: tracks, times, flows, lanes, what is dropped and why."""

import pytest
from reading import Merged, ns

from slime_profiler_plugin.merge import merge_run
from slime_profiler_plugin.testing import MS, ProcessFile, write_synthetic_run, write_trace_window

START = 5_000_000 * MS
ROLLOUT_0 = START + 310 * MS


def op(name, start, dur, pid=200, tid=200, cat="cpu_op", **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts_ns": start,
        "dur_ns": dur,
        "args": args,
    }


def flow(kind, flow_id, at, pid=200, tid=200, cat="ac2g"):
    event = {"ph": kind, "id": flow_id, "pid": pid, "tid": tid, "ts_ns": at, "cat": cat, "name": cat}
    return event | {"bp": "e"} if kind == "f" else event


def names_of(pid, label, threads=()):
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts_ns": 0, "args": {"name": "python"}}
    yield {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "ts_ns": 0, "args": {"labels": label}}
    for tid, name in threads:
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "ts_ns": 0, "args": {"name": name}}


def merge(made, rollouts=0):
    report = merge_run([made.folder], rollouts)
    merged = Merged(report.outputs[0].path)
    merged.assert_valid()
    return report, merged


@pytest.fixture
def made(tmp_path):
    return write_synthetic_run(tmp_path)


def test_events_stand_on_the_clock_of_the_records_to_the_nanosecond(tmp_path, made):
    at = ROLLOUT_0 + 400 * MS + 123
    write_trace_window(tmp_path, made.trainers[0], [0], [op("aten::mm", at, 4567, **{"External id": 9})])
    _, merged = merge(made)
    found = merged.slices("actor rank 0 · tp0 pp0 dp0 · cpu")
    assert found == [("aten::mm", at, at + 4567, "thread 200", {"External id": 9})]


def test_base_of_another_quarter_changes_nothing(tmp_path, made):
    at = ROLLOUT_0 + 400 * MS + 123
    base = 1_782_967_788_000_000_000
    write_trace_window(tmp_path, made.trainers[0], [0], [op("a", at, 10)])
    write_trace_window(tmp_path, made.trainers[1], [0], [op("a", at, 10, pid=201, tid=201)], base_ns=base)
    _, merged = merge(made)
    assert [s[1] for s in merged.slices(name="a")] == [at, at]


def test_each_rank_has_processes_of_its_own_and_names_move_with_them(tmp_path, made):
    """Two containers, both with pid 1, both with device 0, both with the same thread."""
    for rank in (0, 1):
        process = made.trainers[rank]
        process.process.pid = 1
        events = [
            *names_of(1, "CPU", [(1, "thread 1 (python)"), (1, f"main of {rank}")]),
            *names_of(0, "GPU 0", [(7, "stream 7 ")]),
            *names_of(3, "GPU 3"),
            op(f"launch{rank}", ROLLOUT_0 + 10, 100, pid=1, tid="1"),
            op(f"kernel{rank}", ROLLOUT_0 + 50, 100, pid=0, tid=7, cat="kernel", stream=7, correlation=5),
            op("PyTorch Profiler (0)", ROLLOUT_0, 500, pid="Spans", tid="PyTorch Profiler", cat="Trace"),
            {
                "ph": "i",
                "s": "g",
                "name": "Record Window End",
                "pid": "",
                "tid": "",
                "ts_ns": ROLLOUT_0 + 900,
            },
            op("overhead", ROLLOUT_0 + 5, 1, pid=-1, tid=0),
        ]
        write_trace_window(tmp_path, process, [0], events)
    _, merged = merge(made)
    for rank in (0, 1):
        base = f"actor rank {rank} · tp0 pp0 dp{rank}"
        parts = [
            name.removeprefix(base + " · ") for name in merged.processes.values() if name.startswith(base)
        ]
        assert parts == ["phases", "cpu", "gpu 0", "pid -1", "Spans", "unnamed"]
        assert [(s[0], s[3]) for s in merged.slices(f"{base} · cpu")] == [
            (f"launch{rank}", f"main of {rank}")
        ]
        assert [(s[0], s[3]) for s in merged.slices(f"{base} · gpu 0")] == [(f"kernel{rank}", "stream 7 ")]
        kernel = merged.slices(name=f"kernel{rank}")[0][4]
        assert (kernel["correlation"], kernel["stream"]) == (5, 7)
    used = {event["pid"] for event in (*merged.events, *merged.notes)}
    assert used == set(merged.processes)  # device 3 was named and idle


def test_flow_ids_are_unique_and_pairs_stay_in_their_rank(tmp_path, made):
    for rank in (0, 1):
        pid = 200 + rank
        events = [
            op(name, ROLLOUT_0 + at, 50, pid=pid, tid=pid)
            for name, at in zip("ABCD", (0, 100, 200, 300), strict=True)
        ]
        events += [
            flow("s", 1, ROLLOUT_0, pid, pid),
            flow("f", 1, ROLLOUT_0 + 100, pid, pid),
            flow("s", 1, ROLLOUT_0 + 200, pid, pid),
            flow("f", 1, ROLLOUT_0 + 300, pid, pid),
            flow("f", 2 + rank, ROLLOUT_0 + 300, pid, pid, "fwdbwd"),
        ]
        write_trace_window(tmp_path, made.trainers[rank], [0], events)
    _, merged = merge(made)
    cpu = [f"actor rank {rank} · tp0 pp0 dp{rank} · cpu" for rank in (0, 1)]
    inside = [(a[:2], b[:2]) for a, b in merged.arrows() if a[0].endswith("cpu")]
    assert inside == [((c, a), (c, b)) for c in cpu for a, b in ("AB", "CD")]
    ids = [event["id"] for event in merged.events if event["ph"] == "f"]
    assert len(ids) == len(set(ids)) == 6 + 6


def test_kernels_that_cross_move_with_their_flow_to_a_lane_of_the_same_name(tmp_path, made):
    at = ROLLOUT_0
    events = [
        *names_of(0, "GPU 0", [(7, "stream 7")]),
        op("launch", at, 100),
        op("A", at + 3000, 3776, pid=0, tid=7, cat="kernel"),
        op("B", at + 5000, 2000, pid=0, tid=7, cat="kernel"),
        op("C", at + 5500, 500, pid=0, tid=7, cat="kernel"),
        flow("s", 4, at),
        flow("f", 4, at + 5000, 0, 7),
    ]
    write_trace_window(tmp_path, made.trainers[0], [0], events)
    _, merged = merge(made)
    gpu = merged.slices("actor rank 0 · tp0 pp0 dp0 · gpu 0")
    assert [(n, s - at, e - s, row) for n, s, e, row, _ in gpu] == [
        ("A", 3000, 3776, "stream 7"),
        ("B", 5000, 2000, "stream 7"),
        ("C", 5500, 500, "stream 7"),
    ]
    joined = [(a[1], b[1]) for a, b in merged.arrows() if b[0].endswith("gpu 0")]
    assert joined == [("launch", "B")]


def test_window_of_two_rollouts_shares_its_events_at_the_start_of_the_second(tmp_path, made):
    end_0 = START + 1210 * MS  # the sync after rollout 0 ends here
    start_1 = START + 1310 * MS
    events = [
        op("before 0", START + 5, 50),
        op("in 0", end_0 - 100, 50),
        op("over 0's end", end_0 - 10, 50),
        op("between", end_0 + 10, 50),
        op("both", end_0 - 10, start_1 - end_0 + 20),
        op("in 1", start_1 + 5, 5),
        op("after 1", START + 50_000 * MS, 5),
    ]
    write_trace_window(tmp_path, made.trainers[0], [0, 1], events)
    report, zero = merge(made, 0)
    cpu = "actor rank 0 · tp0 pp0 dp0 · cpu"
    assert {s[0] for s in zero.slices(cpu)} == {
        "before 0",
        "in 0",
        "over 0's end",
        "between",
        "both",
    }
    assert {s[0] for s in merge(made, 1)[1].slices(cpu)} == {"both", "in 1", "after 1"}
    ledger = next(s for s in report.outputs[0].sources if "pt.trace" in s.source)
    assert (ledger.read, ledger.written, ledger.other_rollouts) == (7, 5, 2)


def test_events_that_cannot_be_placed_are_dropped_by_name_and_never_set_the_origin(tmp_path, made):
    shift = made.trainers[0].epoch_ns - 1_790_857_026_000_000_000
    events = [
        op("good", ROLLOUT_0 + 5, 5),
        op("zero", -shift, 0),
        op("before", -shift - 10_000, 5),
        op("backwards", ROLLOUT_0 + 9, -5),
        {"ph": "X", "name": "timeless", "pid": 200, "tid": 200},
        {"name": "no phase", "pid": 200, "tid": 200, "ts_ns": ROLLOUT_0 + 9},
    ]
    write_trace_window(tmp_path, made.trainers[0], [0], events)
    report, merged = merge(made)
    assert merged.base_ns == ROLLOUT_0
    assert [s[0] for s in merged.slices("actor rank 0 · tp0 pp0 dp0 · cpu")] == ["good"]
    assert dict(report.outputs[0].total.dropped) == {
        "event at time 0 or before": 2,
        "slice of negative length": 1,
        "event without a time": 1,
        "event without a phase letter": 1,
    }


def test_annotations_tell_their_run_and_metadata_is_kept_per_rank(tmp_path, made):
    events = [op("rollout_0", ROLLOUT_0, 100, cat="user_annotation", **{"External id": 3})]
    for rank in (0, 1):
        write_trace_window(tmp_path, made.trainers[rank], [0], events)
    _, merged = merge(made)
    assert {tuple(sorted(args)) for *_, args in merged.slices(name="rollout_0")} == {
        ("External id", "attempt", "rollouts", "run_id")
    }
    windows = merged.top["slime_profiler_merge"]["windows"]
    assert [w["metadata"]["distributedInfo"]["rank"] for w in windows] == [0, 1]
    assert [w["identity"]["rank"] for w in windows] == [0, 1]


def test_async_ids_are_unique_and_unknown_fields_pass_through(tmp_path, made):
    for rank in (0, 1):
        events = [
            {"ph": "b", "cat": "c", "name": "n", "id": "0x1", "pid": 1, "tid": 1, "ts_ns": ROLLOUT_0 + 1},
            {
                "ph": "e",
                "cat": "c",
                "name": "n",
                "id": "0x1",
                "pid": 1,
                "tid": 1,
                "ts_ns": ROLLOUT_0 + 2,
                "cname": "x",
            },
        ]
        write_trace_window(tmp_path, made.trainers[rank], [0], events)
    _, merged = merge(made)
    found = [(event["ph"], event["id"], event.get("cname")) for event in merged.events if event["ph"] in "be"]
    first, second = found[0][1], found[2][1]
    assert found == [("b", first, None), ("e", first, "x"), ("b", second, None), ("e", second, "x")]
    assert first != second


def test_truncated_window_is_merged_to_its_last_whole_event_and_shown(tmp_path, made):
    events = [op(f"op{n}", ROLLOUT_0 + n * 10, 5) for n in range(2000)]
    path = write_trace_window(tmp_path, made.trainers[0], [0], events)
    packed = path.read_bytes()
    path.write_bytes(packed[: len(packed) // 2])
    report, merged = merge(made)
    found = merged.slices("actor rank 0 · tp0 pp0 dp0 · truncated · cpu")
    assert 100 < len(found) < 2000
    assert {d.kind for d in report.damage} == {"truncated"}
    assert report.exit_code() == 3


def test_window_without_records_is_placed_by_its_wall_clock_and_says_so(tmp_path):
    process = ProcessFile("r", pid=7, role="actor", rank=2)
    write_trace_window(tmp_path, process, [4], [op("a", 10 * MS, 5, pid=7), op("b", 30 * MS, 5, pid=7)])
    report = merge_run([tmp_path / "r"], 4)
    merged = Merged(report.outputs[0].path)
    assert list(merged.processes.values()) == ["actor rank 2 · no records · cpu"]
    assert [ns(event["ts"]) for event in merged.events] == [0, 20 * MS]


def test_two_windows_of_a_rank_are_told_apart(tmp_path, made):
    at = START + 1310 * MS
    write_trace_window(tmp_path, made.trainers[0], [0], [op("a", ROLLOUT_0 + 9, 5)])
    write_trace_window(tmp_path, made.trainers[0], [1], [op("b", at + 9, 5)])
    report = merge_run([made.folder], (0, 2))
    merged = Merged(report.outputs[0].path)
    merged.assert_valid()
    base = "actor rank 0 · tp0 pp0 dp0"
    assert [s[0] for s in merged.slices(f"{base} · window rollout_000000 · cpu")] == ["a"]
    assert [s[0] for s in merged.slices(f"{base} · window rollout_000001 · cpu")] == ["b"]


def test_window_of_another_rollout_is_counted_and_not_shown(tmp_path, made):
    """It knows what it covers, so its events do not move the start of a neighbour's file."""
    overlapping = [op("train of 1", ROLLOUT_0 + 9, 2000 * MS), op("b", START + 1400 * MS, 5)]
    write_trace_window(tmp_path, made.trainers[0], [1], overlapping)
    report, zero = merge(made, 0)
    assert not [name for name in zero.processes.values() if name.endswith("cpu")]
    (ledger,) = [s for s in report.outputs[0].sources if "pt.trace" in s.source]
    assert (ledger.read, ledger.written, ledger.other_rollouts) == (2, 0, 2)
    assert {s[0] for s in merge(made, 1)[1].slices("actor rank 0 · tp0 pp0 dp0 · cpu")} == {"train of 1", "b"}


def test_step_of_the_wall_clock_in_a_window_is_followed_and_warned_of(tmp_path):
    process = ProcessFile("r", pid=7, role="actor", rank=0)
    process.phase("train_step", 1, 30_000 * MS, rollout=0)
    process.clock(0)
    process.clock(10_000 * MS)
    process.epoch_ns += 5_000 * MS
    process.clock(11_000 * MS)
    process.clock(20_000 * MS)
    process.end(30_000 * MS)
    process.write(tmp_path)
    # Written with the wall clock after the step.
    write_trace_window(
        tmp_path,
        process,
        [0],
        [op("a", 15_000 * MS, 7, pid=7, tid=7)],
        pairs=[(11_500 * MS, process.epoch_ns + 11_500 * MS, 100)],
    )
    report = merge_run([tmp_path / "r"], 0)
    merged = Merged(report.outputs[0].path)
    assert [s[1:3] for s in merged.slices(name="a")] == [(15_000 * MS, 15_000 * MS + 7)]
    assert report.warnings == ["the wall clock of boot0 was stepped by +5.000 s"]
