"""From run folders to merged files: what is in them, where, and with which values."""

import gzip
import json
import os
import shutil

import pytest
from reading import Merged

from slime_profiler_plugin import schema
from slime_profiler_plugin.merge import MergeError, MergeUsageError, _merge, merge_run, parse_choice
from slime_profiler_plugin.read import FolderOfRunsError, ReadError, VanishedError
from slime_profiler_plugin.testing import MS, ProcessFile, write_synthetic_run

START = 5_000_000 * MS


def merge_one(folder, rollouts, **more):
    report = merge_run([folder], rollouts, **more)
    (output,) = report.outputs
    merged = Merged(output.path)
    merged.assert_valid()
    return report, merged


def phases_of(process, rollout):
    """(name, start, end) as recorded."""
    return sorted(
        (line.start_ns, -line.dur_ns, line.name)
        for line in process.lines
        if isinstance(line, schema.Phase) and line.rollout == rollout
    )


def test_phases_of_a_rollout_stand_under_their_rank_with_their_measured_times(tmp_path):
    made = write_synthetic_run(tmp_path)
    _, merged = merge_one(made.folder, 0)
    for rank, process in enumerate(made.trainers):
        found = merged.slices(f"actor rank {rank} · tp0 pp0 dp{rank} · phases")
        assert [(s, -(e - s), n) for n, s, e, *_ in found] == phases_of(process, 0)
    counted = [(name, args["step"]) for name, _, _, _, args in merged.slices(name="optimizer")]
    assert sorted(counted) == [("optimizer", 0), ("optimizer", 0), ("optimizer", 1), ("optimizer", 1)]
    assert list(merged.processes.values()) == [
        "run synthetic · attempt 0 · rollout_000000",
        "driver · phases",
        "actor rank 0 · tp0 pp0 dp0 · phases",
        "actor rank 1 · tp0 pp0 dp1 · phases",
        "engine 0 · phases",
        "engine 1 · phases",
    ]


def test_the_file_says_what_it_is_with_a_slice_for_each_rollout(tmp_path):
    process = ProcessFile("r", pid=1, role="actor", rank=0)
    process.phase("train_step", 1000, 1500, rollout=0)
    process.phase("train_step", 1600, 1900, rollout=1)
    process.phase("generate", 1400, 1800, rollout=1)
    process.write(tmp_path)
    report = merge_run([tmp_path / "r"], (0, 2))
    merged = Merged(report.outputs[0].path)
    merged.assert_valid()
    (pid,) = [p for p, name in merged.processes.items() if name.startswith("run ")]
    assert merged.processes[pid] == "run r · attempt 0 · rollout_000000, rollout_000001"
    about = [(n["name"], n["ts"], n["dur"], n["args"]) for n in merged.notes]
    assert about == [
        ("rollout 0", "0.000", "0.500", {"run_id": "r", "attempt": 0, "rollout": 0}),
        ("rollout 1", "0.400", "0.500", {"run_id": "r", "attempt": 0, "rollout": 1}),
    ]
    assert len({n["tid"] for n in merged.notes}) == 2, "they cross"
    assert report.outputs[0].notes == 2


def test_every_event_tells_its_run_attempt_rollout_and_timing(tmp_path):
    made = write_synthetic_run(tmp_path, run_id="my run", attempt=2)
    _, merged = merge_one(made.folder, 1)
    for name, _, _, _, args in merged.slices():
        assert (args["run_id"], args["attempt"], args["rollout"], args["timing"]) == (
            "my run",
            2,
            1,
            "host",
        ), name
    (send, *_) = merged.slices(name="bucket_send")
    assert {
        k: send[4][k] for k in ("sync", "bucket", "bytes", "tensors", "transport", "weight_version", "source")
    } == {
        "sync": 2,
        "bucket": 0,
        "bytes": 4096,
        "tensors": 2,
        "transport": "nccl",
        "weight_version": "2",
        "source": made.trainers[0].source,
    }
    assert all("run my run · attempt 2 · rollout_000001" in label for label in merged.labels.values())


def test_sync_belongs_to_the_rollout_it_follows_and_engines_to_their_sync(tmp_path):
    made = write_synthetic_run(tmp_path, buckets=3, engines=2)
    for rollout, sync in (("initial", 0), (0, 1), (1, 2)):
        _, merged = merge_one(made.folder, rollout)
        received = merged.slices(name="engine_receive")
        assert len(received) == 6
        assert {(args["sync"], args["rollout"]) for *_, args in received} == {(sync, rollout)}


def test_one_arrow_from_each_send_to_each_engine(tmp_path):
    made = write_synthetic_run(tmp_path, buckets=3, engines=2)
    report, merged = merge_one(made.folder, 0)
    sender = "actor rank 0 · tp0 pp0 dp0 · phases"
    expected = [
        ((sender, "bucket_send", bucket), (f"engine {engine} · phases", "engine_receive", bucket))
        for bucket in range(3)
        for engine in range(2)
    ]
    assert merged.arrows() == sorted(expected)
    assert (report.outputs[0].arrows, report.outputs[0].arrows_not_drawn) == (6, {})


def test_conservation_is_stored_and_sums_up(tmp_path):
    made = write_synthetic_run(tmp_path)
    report, merged = merge_one(made.folder, 0)
    lines = sum(len(process.lines) for process in made.processes)
    total = report.outputs[0].total
    assert total.read == lines
    assert total.written == len([e for e in merged.events if e["ph"] not in "sf"]) == report.outputs[0].events
    described = sum(
        isinstance(x, (schema.Process, schema.Clock, schema.End)) for p in made.processes for x in p.lines
    )
    assert (total.described, total.other_rollouts) == (described, lines - described - total.written)
    stored = merged.top["slime_profiler_conservation"]
    assert stored["total"]["read"] == lines
    assert sum(source["written"] for source in stored["sources"]) == total.written


def test_times_are_relative_to_the_earliest_event_and_the_base_is_stored(tmp_path):
    made = write_synthetic_run(tmp_path)
    report, merged = merge_one(made.folder, 0)
    assert min(start for _, start, *_ in merged.slices()) == merged.base_ns == START + 310 * MS
    about = merged.top["slime_profiler_merge"]
    assert about["base_unix_ns"] == 1_795_000_000 * 10**9 + 310 * MS
    assert merged.top["baseTimeNanoseconds"] == about["base_unix_ns"] == report.outputs[0].base_unix_ns


def test_other_host_stands_where_its_wall_clock_puts_it_and_says_so(tmp_path):
    near = write_synthetic_run(tmp_path / "a")
    far = write_synthetic_run(tmp_path / "b", engine_host_offset_ns=7 * 10**15)
    _, here = merge_one(near.folder, 0)
    report, there = merge_one(far.folder, 0)
    for engine in (0, 1):
        expected = [s[:3] for s in here.slices(f"engine {engine} · phases")]
        assert [s[:3] for s in there.slices(f"engine {engine} · assumed: wall clock · phases")] == expected
    clocks = {process.name: process.clock for process in report.processes}
    assert (clocks["driver"], clocks["engine 0"]) == ("same clock", "assumed: wall clock")
    assert len(there.arrows()) == 6


def test_processes_of_one_domain_keep_offset_zero_whatever_their_pairs_say(tmp_path):
    first = ProcessFile("r", pid=1, role="driver")
    second = ProcessFile("r", pid=2, role="actor", rank=0, epoch_ns=first.epoch_ns + 40_000)
    for process in (first, second):
        process.phase("train_step", 1000, 5001, rollout=0)
        process.end(6000)
        process.write(tmp_path)
    _, merged = merge_one(tmp_path / "r", 0)
    assert [s[:3] for s in merged.slices()] == [("train_step", 1000, 5001)] * 2


def test_latest_is_the_last_rollout_that_every_process_is_done_with(tmp_path):
    made = write_synthetic_run(tmp_path, rollouts=3)
    report = merge_run([made.folder])
    assert [output.rollouts for output in report.outputs] == [[2]]
    # Rank 1 was killed in rollout 2, before its sync.
    path = next(made.folder.glob("records/*/201-*.jsonl"))
    made.trainers[1].process.period_s = 0.1
    lines = [x for x in made.trainers[1].lines[:-2] if getattr(x, "sync", 0) != 3]
    path.write_bytes(schema.encode_lines(lines))
    report = merge_run([made.folder])
    assert [output.rollouts for output in report.outputs] == [[1]]
    assert report.warnings == ["rollout 2 is not complete: --rollout 2 merges it all the same"]
    assert merge_run([made.folder], 2).outputs[0].rollouts == [2]


def test_rollout_that_the_end_of_the_job_cut_off_without_exit_code_is_complete(tmp_path):
    made = write_synthetic_run(tmp_path, rollouts=2)
    for process in made.trainers:
        process.lines.pop()  # the end; the clock pair before it is the last sign of life
        process.write(tmp_path)
    report = merge_run([made.folder])
    assert [output.rollouts for output in report.outputs] == [[1]]
    assert {p.ending for p in report.processes if p.role == "actor"} == {"ended with the job"}
    assert report.warnings == []


def test_processes_that_do_not_say_what_they_are_are_told_apart_by_pid(tmp_path):
    for pid, fields in ((5, {}), (6, {}), (7, {"role": "reward"}), (8, {"role": "reward"})):
        process = ProcessFile("r", pid=pid, **fields)
        process.phase("work", 10, 20, rollout=0)
        process.end(100)
        process.write(tmp_path)
    for rank in (0, 1):  # two schedulers of one engine
        process = ProcessFile("r", pid=20 + rank, role="engine", rank=rank, engine={"index": 3})
        process.phase("work", 10, 20, rollout=0)
        process.end(100)
        process.write(tmp_path)
    _, merged = merge_one(tmp_path / "r", 0)
    assert list(merged.processes.values()) == [
        "run r · attempt 0 · rollout_000000",
        "engine 3 · pid 20 · phases",
        "engine 3 · pid 21 · phases",
        "reward · pid 7 · phases",
        "reward · pid 8 · phases",
        "process 5 · phases",
        "process 6 · phases",
    ]


def test_all_writes_one_file_per_rollout_and_a_range_one_for_all(tmp_path):
    made = write_synthetic_run(tmp_path, rollouts=4)
    report = merge_run([made.folder], "all")
    names = [output.path.rsplit("/", 1)[1] for output in report.outputs]
    numbered = [f"rollout_{n:06d}.trace.json.gz" for n in range(4)]
    assert names == ["initial.trace.json.gz", *numbered]
    (both,) = merge_run([made.folder], (1, 3)).outputs
    assert both.path.endswith("/merged/rollout_000001-000002.trace.json.gz")
    assert both.rollouts == [1, 2]
    single = sum(output.events for output in report.outputs if output.rollouts in ([1], [2]))
    assert both.events == single


def test_output_can_be_a_file_or_a_folder(tmp_path):
    made = write_synthetic_run(tmp_path)
    merge_run([made.folder], 0, tmp_path / "x.json")
    merge_run([made.folder], 0, tmp_path / "y.json.gz")
    plain, packed = Merged(tmp_path / "x.json"), Merged(tmp_path / "y.json.gz")
    assert plain.events == packed.events
    merge_run([made.folder], "all", tmp_path / "many")
    assert len(list((tmp_path / "many").iterdir())) == 3
    with pytest.raises(MergeUsageError, match="3 rollouts do not fit one file"):
        merge_run([made.folder], "all", tmp_path / "z.json")


def test_equal_inputs_give_equal_bytes(tmp_path):
    made = write_synthetic_run(tmp_path)
    first, second = tmp_path / "1.json.gz", tmp_path / "2.json.gz"
    merge_run([made.folder], 0, first)
    merge_run([made.folder], 0, second)
    assert first.read_bytes() == second.read_bytes()


def test_nothing_is_left_behind_when_writing_fails(tmp_path):
    made = write_synthetic_run(tmp_path)
    target = tmp_path / "dir.json"
    target.mkdir()
    with pytest.raises(OSError, match="directory"):
        merge_run([made.folder], 0, target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dir.json", "synthetic"]


def test_missing_rank_is_an_empty_labelled_process(tmp_path):
    made = write_synthetic_run(tmp_path, trainers=3)
    next(made.folder.glob("records/*/201-*.jsonl")).unlink()
    report, merged = merge_one(made.folder, 0)
    (pid,) = [pid for pid, name in merged.processes.items() if name == "actor rank 1 · missing"]
    assert not [event for event in merged.events if event["pid"] == pid]
    (note,) = [note for note in merged.notes if note["pid"] == pid]
    assert (note["name"], note["ts"], note["dur"]) == (
        "missing",
        merged.notes[0]["ts"],
        merged.notes[0]["dur"],
    )
    assert [(r.role, r.seen, r.world_size, r.missing) for r in report.ranks if r.missing] == [
        ("actor", 2, 3, [1])
    ]
    assert report.exit_code() == 3
    assert report.exit_code(allow_partial=True) == 0


def test_open_phase_is_drawn_to_the_last_sign_of_life_and_named(tmp_path):
    driver = ProcessFile("r", pid=1, role="driver", start_ns=0)
    driver.phase("generate", 1, 100, rollout=0)
    driver.end(60_000 * MS)
    killed = ProcessFile("r", pid=2, role="actor", rank=0)
    killed.open("train_step", 1000, 3000 * MS, rollout=0)
    killed.open("forward_backward", 2000, 3000 * MS, rollout=0, parent=1)
    killed.clock(5000 * MS)
    for process in (driver, killed):
        process.write(tmp_path)
    report, merged = merge_one(tmp_path / "r", 0)
    found = merged.slices("actor rank 0 · ended early · phases")
    assert [s[:3] for s in found] == [
        ("train_step (open)", 1000, 5000 * MS),
        ("forward_backward (open)", 2000, 5000 * MS),
    ]
    assert all(args["open"] is True for *_, args in found)
    (told,) = [p for p in report.processes if p.role == "actor"]
    assert (told.ending, told.open_phases) == ("ended early", {"train_step": 1, "forward_backward": 1})
    assert report.exit_code() == 0


def test_open_line_of_a_phase_that_ended_is_dropped_by_name(tmp_path):
    process = ProcessFile("r", pid=1, role="actor", rank=0)
    process.open("train_step", 10, 20, rollout=0)
    process.lines.append(schema.Phase(id=1, name="train_step", start_ns=10, dur_ns=30, tid=1, rollout=0))
    process.end(50)
    process.write(tmp_path)
    report, merged = merge_one(tmp_path / "r", 0)
    assert [s[:3] for s in merged.slices()] == [("train_step", 10, 40)]
    assert dict(report.outputs[0].total.dropped) == {"superseded by the phase that ended": 1}


def test_torn_file_is_merged_to_its_last_whole_line_and_exits_3(tmp_path):
    made = write_synthetic_run(tmp_path)
    path = next(made.folder.glob("records/*/200-*.jsonl"))
    path.write_bytes(path.read_bytes()[:-10])
    report, merged = merge_one(made.folder, 0)
    assert [(d.kind, d.lost) for d in report.damage] == [("truncated", 1)]
    assert "actor rank 0 · tp0 pp0 dp0 · truncated · phases" in merged.processes.values()
    assert report.exit_code() == 3


def test_incarnations_of_a_rank_are_two_processes_and_arrows_never_join_across(tmp_path):
    made = write_synthetic_run(tmp_path, engines=1)
    # The rank restarted within the attempt and did the same sync again.
    again = ProcessFile(
        made.run_id,
        pid=999,
        role="actor",
        rank=0,
        ranks=made.trainers[0].process.ranks,
        world_size=2,
        start_ns=START + 5000 * MS,
        epoch_ns=made.trainers[0].epoch_ns,
    )
    again.phase("bucket_send", START + 5001 * MS, START + 5002 * MS, rollout=0, sync=1, bucket=0)
    again.end(START + 5003 * MS)
    again.write(tmp_path)
    _, merged = merge_one(made.folder, 0)
    names = [name for name in merged.processes.values() if name.startswith("actor rank 0")]
    assert names == [
        "actor rank 0 · tp0 pp0 dp0 · incarnation 1 · phases",
        "actor rank 0 · tp0 pp0 dp0 · incarnation 2 · phases",
    ]
    assert {begin[0] for begin, _ in merged.arrows()} == {names[0]}
    assert len(merged.arrows()) == 3


def test_attempts_of_a_run_stand_side_by_side(tmp_path):
    write_synthetic_run(tmp_path, rollouts=1, engines=1)
    second = write_synthetic_run(tmp_path, rollouts=1, engines=1, attempt=1, start_ns=START + 50_000 * MS)
    report, merged = merge_one(second.folder, 0)
    assert report.attempts == [0, 1]
    for attempt in (0, 1):
        found = merged.slices(f"actor rank 0 · tp0 pp0 dp0 · attempt {attempt} · phases", "train_step")
        assert [args["attempt"] for *_, args in found] == [attempt, attempt]
    assert len(merged.arrows()) == 6
    assert report.warnings == [
        "rollout_000000.trace.json.gz shows attempts 0, 1, 50 s apart; --attempt N merges one"
    ]


def test_one_attempt_can_be_asked_for(tmp_path):
    write_synthetic_run(tmp_path, rollouts=1, engines=1)
    second = write_synthetic_run(tmp_path, rollouts=1, engines=1, attempt=1, start_ns=START + 50_000 * MS)
    report, merged = merge_one(second.folder, 0, attempt=1)
    assert (report.attempts, report.warnings) == ([1], [])
    assert {args["attempt"] for *_, args in merged.slices()} == {1}
    assert len(merged.arrows()) == 3
    with pytest.raises(ReadError, match="has no attempt 2; it has 0, 1"):
        merge_run([second.folder], 0, attempt=2)


def test_what_can_be_in_no_file_is_dropped_by_name(tmp_path):
    """An engine that was taken for an attempt of its own, in which there is no rollout."""
    trainer = ProcessFile("r", pid=1, role="actor", rank=0)
    trainer.phase("bucket_send", 1000, 2000, rollout=0, sync=1, bucket=0)
    engine = ProcessFile("r", pid=2, role="engine", rank=0, attempt=1)
    engine.phase("engine_receive", 1100, 2100, sync=1, bucket=0, source=trainer.source)
    for process in (trainer, engine):
        process.write(tmp_path)
    report, merged = merge_one(tmp_path / "r", 0)
    assert merged.slices(name="engine_receive") == []
    assert report.outputs[0].total.dropped == {"names no rollout, and none was under way": 1}


def test_latest_is_of_the_last_attempt(tmp_path):
    first = ProcessFile("r", pid=1, role="actor", rank=0)
    first.phase("train_step", 1000, 2000, rollout=3)
    second = ProcessFile("r", pid=2, role="actor", rank=0, attempt=1)
    second.phase("train_step", 5000, 6000, rollout=1)
    for process in (first, second):
        process.write(tmp_path)
    report = merge_run([tmp_path / "r"])
    assert [o.rollouts for o in report.outputs] == [[1]]
    assert report.warnings == ["no rollout is complete; this is the latest, 1"]


def test_records_that_name_no_rollout_are_taken_where_they_touch_its_span(tmp_path):
    trainer = ProcessFile("r", pid=1, role="actor", rank=0)
    trainer.phase("train_step", 1000, 2000, rollout=0)
    trainer.phase("train_step", 3000, 4000, rollout=1)
    trainer.end(9000)
    other = ProcessFile("r", pid=2, role="engine", rank=0)
    touching = [(500, 1000), (1500, 1600), (500, 5000), (2000, 2500)]
    for start, end in [*touching, (500, 999), (2001, 2999)]:
        other.phase("decode", start, end, tid=start * 10000 + end)
    other.end(9000)
    for process in (trainer, other):
        process.write(tmp_path)
    report, merged = merge_one(tmp_path / "r", 0)
    assert sorted(s[1:3] for s in merged.slices(name="decode")) == sorted(touching)
    assert all("rollout" not in args for *_, args in merged.slices(name="decode"))
    total = report.outputs[0].total
    assert total.other_rollouts == 1
    assert total.dropped == {"names no rollout, and none was under way": 2}
    _, second = merge_one(tmp_path / "r", 1)
    assert [s[1:3] for s in second.slices(name="decode")] == [(500, 5000)]


def test_engine_that_knows_only_the_weight_version_belongs_to_that_sync(tmp_path):
    trainer = ProcessFile("r", pid=1, role="actor", rank=0)
    for rollout in (0, 1):
        at = 10_000 * rollout
        key = {"rollout": rollout, "sync": rollout, "weight_version": f"v{rollout}"}
        trainer.phase("weight_sync", at, at + 500, **key)
        trainer.phase("bucket_send", at + 10, at + 200, bucket=0, **key)
    trainer.end(20_000)
    engine = ProcessFile("r", pid=2, role="engine", rank=0)
    engine.phase("engine_receive", 10_020, 10_300, weight_version="v0", bucket=0)  # late, but of version 0
    engine.end(20_000)
    for process in (trainer, engine):
        process.write(tmp_path)
    _, merged = merge_one(tmp_path / "r", 0)
    ((_, start, _, _, args),) = merged.slices(name="engine_receive")
    assert (start, args["rollout"]) == (10_020, 0)
    _, second = merge_one(tmp_path / "r", 1)
    assert second.slices(name="engine_receive") == []


def test_a_weight_version_that_never_changes_says_nothing(tmp_path):
    trainer = ProcessFile("r", pid=1, role="actor", rank=0)
    for rollout in (0, 1):
        at = 10_000 * rollout
        key = {"rollout": rollout, "sync": rollout, "weight_version": "default"}
        trainer.phase("bucket_send", at + 10, at + 200, bucket=0, **key)
    trainer.end(20_000)
    engine = ProcessFile("r", pid=2, role="engine", rank=0)
    engine.phase("engine_receive", 10_020, 10_300, weight_version="default", bucket=0)
    engine.end(20_000)
    for process in (trainer, engine):
        process.write(tmp_path)
    _, first = merge_one(tmp_path / "r", 0)
    assert first.slices(name="engine_receive") == []
    report, second = merge_one(tmp_path / "r", 1)
    assert len(second.slices(name="engine_receive")) == 1  # by its time
    assert report.outputs[0].arrows == 0
    assert report.outputs[0].arrows_not_drawn == {
        "bucket_send to engine_receive: ambiguous: the weight version is that of several syncs": 1
    }


def test_brackets_marks_drops_and_buckets_have_rows_of_their_own(tmp_path):
    process = ProcessFile("r", pid=1, role="actor", rank=0)
    phase = process.phase("forward_backward", 1000, 2000, rollout=0, step=4)
    other = process.phase("forward_backward", 5000, 6000, rollout=1)
    send = process.phase("bucket_send", 1200, 1300, rollout=0, sync=0, bucket=0)
    device = {"device_type": "cuda", "device_index": 1, "stream": 7, "uncertainty_ns": 900}
    process.lines += [
        schema.Device(id=phase, start_ns=1100, dur_ns=700, **device),
        schema.Device(id=other, start_ns=5100, dur_ns=700, **device),
        schema.Mark(name="note", start_ns=1500, tid=1, rollout=0, attrs={"big": 2**63, "small": 5}),
        schema.Drop(at_ns=1600, what="phase", reason="the queue is full", count=12, names={"forward": 12}),
        schema.Drop(at_ns=9600, what="phase", reason="the queue is full", count=1),
        schema.Thread(tid=1, name="MainThread"),
    ]
    process.end(9999)
    process.write(tmp_path)
    report, merged = merge_one(tmp_path / "r", 0)
    rows = {(name, start, end): (row, args) for name, start, end, row, args in merged.slices()}
    assert rows["forward_backward", 1000, 2000][0] == "MainThread 1"
    assert rows["bucket_send", 1200, 1300][0] == "buckets"
    row, args = rows["forward_backward", 1100, 1800]
    assert row == "brackets · cuda 1 stream 7"
    assert (args["timing"], args["uncertainty_ns"], args["device"], args["stream"]) == (
        "device_event_bracket",
        900,
        "cuda:1",
        7,
    )
    assert (args["phase_id"], args["rollout"], args["step"]) == (phase, 0, 4)
    assert [rows[key][1]["timing"] for key in rows if key[1] != 1100] == ["host", "host"]
    marks = {e["name"]: (merged.threads[e["tid"]][1], e["args"]) for e in merged.events if e["ph"] == "i"}
    assert marks["note"][0] == "MainThread 1"
    assert marks["note"][1]["attrs"] == {"big": str(2**63), "small": 5}
    assert marks["12 phase dropped"][1]["names"] == {"forward": 12}
    assert set(marks) == {"note", "12 phase dropped"}
    assert report.processes[0].dropped == {"phase: the queue is full": 13}
    assert send


def test_tasks_of_a_thread_get_lanes_of_their_own(tmp_path):
    process = ProcessFile("r", pid=1, role="rollout_manager")
    process.phase("generate", 1, 1000, rollout=0)
    for task, start in ((1, 100), (2, 150), (3, 400)):
        outer = process.phase("reward", start, start + 100, rollout=0, task=task)
        process.phase("score", start + 10, start + 90, rollout=0, task=task, parent=outer)
    process.end(2000)
    process.write(tmp_path)
    _, merged = merge_one(tmp_path / "r", 0)
    lanes = {}
    for event in merged.events:
        if "task" in event["args"]:
            lanes.setdefault(event["args"]["task"], set()).add(event["tid"])
    assert all(len(tids) == 1 for tids in lanes.values())
    assert lanes[1] != lanes[2]
    assert lanes[3] == lanes[1]  # free again when task 3 begins
    assert {merged.threads[tid][1] for tids in lanes.values() for tid in tids} == {"thread 1 · tasks"}


def test_phases_that_cross_move_to_a_lane_of_the_same_name(tmp_path):
    process = ProcessFile("r", pid=1, role="actor", rank=0)
    process.phase("a", 1000, 2000, rollout=0)
    process.phase("b", 1500, 2001, rollout=0)
    process.end(3000)
    process.write(tmp_path)
    _, merged = merge_one(tmp_path / "r", 0)
    found = merged.slices()
    assert [s[:4] for s in found] == [("a", 1000, 2000, "thread 1"), ("b", 1500, 2001, "thread 1")]
    assert len({event["tid"] for event in merged.events}) == 2


def test_names_and_values_are_written_as_strict_json(tmp_path):
    process = ProcessFile("r", pid=1, role="actor", rank=0)
    process.phase('ctl\x01\n"q" ä\u2028', 1000, 2000, rollout=0, attrs={"x": "\x7f\x00", "n": 0.1})
    process.end(3000)
    path = process.write(tmp_path)
    path.write_bytes(
        path.read_bytes() + b'{"kind":"mark","name":"m","start_ns":1500,"tid":1,"rollout":0,"new":[1]}\n'
    )
    _, merged = merge_one(tmp_path / "r", 0)
    assert merged.slices()[0][0] == 'ctl\x01\n"q" ä\u2028'
    (mark,) = [event for event in merged.events if event["ph"] == "i"]
    assert mark["args"]["extra"] == {"new": [1]}


def test_unknown_kinds_are_dropped_by_name(tmp_path):
    made = write_synthetic_run(tmp_path)
    path = next(made.folder.glob("records/*/100-*.jsonl"))
    path.write_bytes(path.read_bytes() + b'{"kind":"weather","sun":true}\n')
    report, _ = merge_one(made.folder, 0)
    assert dict(report.outputs[0].total.dropped) == {"kind weather is not known": 1}
    assert report.exit_code() == 0


def test_run_that_is_still_being_written_is_merged_as_far_as_it_was_read(tmp_path, monkeypatch):
    made = write_synthetic_run(tmp_path)
    path = next(made.folder.glob("records/*/200-*.jsonl"))
    content = path.read_bytes()
    half = content.index(b"\n", len(content) // 2) + 1
    path.write_bytes(content[:half])
    from slime_profiler_plugin.merge import _merge

    read_run = _merge.read_run

    def read_then_grow(folders):
        run = read_run(folders)
        path.write_bytes(content)
        return run

    monkeypatch.setattr(_merge, "read_run", read_then_grow)
    report = merge_run([made.folder], "initial")
    assert report.outputs[0].total.read == sum(len(p.lines) for p in made.processes) - content[half:].count(
        b"\n"
    )


def test_copies_are_united(tmp_path):
    made = write_synthetic_run(tmp_path / "a")
    copy = tmp_path / "b" / "synthetic"
    shutil.copytree(made.folder, copy)
    whole = Merged(merge_run([made.folder], 0).outputs[0].path).events
    next(made.folder.glob("records/*/200-*.jsonl")).unlink()
    next(copy.glob("records/*/300-*.jsonl")).unlink()
    report = merge_run([made.folder, copy], 0)
    assert Merged(report.outputs[0].path).events == whole
    assert report.exit_code() == 0


@pytest.mark.parametrize(
    ("text", "choice"),
    [("latest", "latest"), ("all", "all"), ("initial", "initial"), ("0", 0), ("12", 12), ("3:5", (3, 5))],
)
def test_rollout_choices(text, choice):
    assert parse_choice(text) == choice


@pytest.mark.parametrize("text", ["", "x", "-1", "3:", ":5", "5:3", "3:3", "1:2:3", "1.5", "²"])
def test_bad_rollout_choices_say_what_is_allowed(text):
    with pytest.raises(MergeUsageError, match="allowed are a number, a:b with a < b, initial, latest, all"):
        parse_choice(text)


def test_rollout_that_is_not_there_is_an_error_that_lists_those_that_are(tmp_path):
    made = write_synthetic_run(tmp_path, rollouts=4)
    with pytest.raises(MergeError, match="no rollout 9; it has initial, 0 to 3"):
        merge_run([made.folder], 9)
    with pytest.raises(MergeError, match="no rollout 7:9"):
        merge_run([made.folder], (7, 9))


def test_folder_of_runs_is_not_merged(tmp_path):
    write_synthetic_run(tmp_path)
    with pytest.raises(FolderOfRunsError):
        merge_run([tmp_path])


def test_report_is_plain_data(tmp_path):
    made = write_synthetic_run(tmp_path)
    report = merge_run([made.folder], 0)
    plain = json.loads(json.dumps(report.to_builtins()))
    assert plain["outputs"][0]["total"]["read"] == report.outputs[0].total.read
    with gzip.open(plain["outputs"][0]["path"]) as merged:
        assert merged.read(1) == b"{"


def compress_all(folder):
    """What a recorder does with a segment that is full, to all record files."""
    for path in folder.glob("records/*/*.jsonl"):
        final = path.with_name(f"{path.stem}.000.jsonl.gz")
        final.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


@pytest.mark.parametrize("after", ["plan_outputs", "read_run"])
def test_file_that_gets_its_final_name_meanwhile_is_read_under_that(tmp_path, monkeypatch, after):
    made = write_synthetic_run(tmp_path)
    before = merge_run([made.folder], "all", tmp_path / "before")
    step = getattr(_merge, after)

    def step_then_compress(*arguments):
        result = step(*arguments)
        compress_all(made.folder)
        return result

    monkeypatch.setattr(_merge, after, step_then_compress)
    report = merge_run([made.folder], "all", tmp_path / "meanwhile")
    assert report.exit_code() == 0
    assert [o.total.written for o in report.outputs] == [o.total.written for o in before.outputs]


def test_files_that_always_vanish_are_an_error_in_the_end(tmp_path, monkeypatch):
    made = write_synthetic_run(tmp_path)
    path = min(made.folder.glob("records/*/*.jsonl"))
    content = path.read_bytes()

    def plan_without_it(*arguments):
        path.unlink()
        return plan_outputs(*arguments)

    def read_with_it(folders):
        path.write_bytes(content)
        return read_run(folders)

    plan_outputs, read_run = _merge.plan_outputs, _merge.read_run
    monkeypatch.setattr(_merge, "plan_outputs", plan_without_it)
    monkeypatch.setattr(_merge, "read_run", read_with_it)
    with pytest.raises(VanishedError, match=path.name):
        merge_run([made.folder], "all")


def test_a_segment_that_gave_its_name_away_is_read_again(tmp_path, monkeypatch):
    """The recorder rotates between the two readings: the name now belongs to the next segment."""
    made = write_synthetic_run(tmp_path)
    before = merge_run([made.folder], "all", tmp_path / "before")
    path = min(made.folder.glob("records/*/*.jsonl"))
    first, rest = path.read_bytes().split(b"\n", 1)
    plan_outputs = _merge.plan_outputs
    rotated = []

    def rotate_then_plan(*arguments):
        if not rotated:
            rotated.append(path.rename(path.with_suffix(".000.jsonl")))
            path.write_bytes(first.replace(b'"segment":0', b'"segment":1') + b"\n")
        return plan_outputs(*arguments)

    monkeypatch.setattr(_merge, "plan_outputs", rotate_then_plan)
    report = merge_run([made.folder], "all", tmp_path / "meanwhile")
    assert rotated
    assert rest
    assert [o.total.written for o in report.outputs] == [o.total.written for o in before.outputs]


def test_what_is_no_regular_file_is_no_source(tmp_path):
    made = write_synthetic_run(tmp_path)
    folder = next(made.folder.glob("records/*"))
    os.mkfifo(folder / "77-1.jsonl")
    report, _ = merge_one(made.folder, 0)
    assert report.ignored == [str(folder / "77-1.jsonl")]


def test_rollouts_that_users_named_alike_have_files_of_their_own(tmp_path):
    process = ProcessFile("r", pid=1, role="actor", rank=0)
    for at, name in enumerate(("eval/1", "eval_1"), 1):
        process.phase("eval", at * 1000, at * 1000 + 5, rollout=name)
    process.write(tmp_path)
    report = merge_run([tmp_path / "r"], "all")
    found = {
        o.path.rsplit("/", 1)[1]: Merged(o.path).slices(name="eval")[0][4]["rollout"] for o in report.outputs
    }
    assert found == {"eval_1.trace.json.gz": "eval/1", "eval_1-2.trace.json.gz": "eval_1"}


def test_a_negative_rollout_is_no_rollout(tmp_path):
    process = ProcessFile("r", pid=1, role="actor", rank=0)
    process.phase("train_step", 10, 20, rollout=0)
    process.phase("train_step", 30, 40, rollout=-3)
    process.write(tmp_path)
    report = merge_run([tmp_path / "r"], "all")
    assert [o.rollouts for o in report.outputs] == [[0]]
    assert [(d.kind, d.line) for d in report.damage] == [("corrupt", 3)]
    assert report.exit_code() == 3


def test_a_file_of_another_kind_is_no_folder_for_outputs(tmp_path):
    made = write_synthetic_run(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(MergeUsageError, match=r"notes.txt: no folder, and a file's name ends in .json"):
        merge_run([made.folder], 0, tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"
