"""One run from copies of its folder."""

import gzip
import json
import shutil

import pytest

from slime_profiler_plugin import schema
from slime_profiler_plugin.read import FolderOfRunsError, ReadError, find_runs, read_run
from slime_profiler_plugin.testing import ProcessFile, write_synthetic_run, write_trace_window


def phases(run):
    return [phase for records in run.processes for phase in records.phases()]


def record_path(run, process):
    return next(run.folder.glob(f"records/*/{process.process.incarnation}.jsonl"))


def test_a_run_lists_its_processes_and_what_they_wrote(tmp_path):
    made = write_synthetic_run(tmp_path)
    run = read_run([made.folder])
    assert run.run_id == "synthetic"
    assert run.attempts == [0]
    assert run.rollouts() == ["initial", 0, 1]
    assert [r.process.role for r in run.processes] == ["driver", "actor", "actor", "engine", "engine"]
    written = [line for p in made.processes for line in p.lines if isinstance(line, schema.Phase)]
    assert sorted(phases(run), key=str) == sorted(written, key=str)
    assert run.damage == []
    trainer = run.processes[1]
    assert trainer.source == made.trainers[0].source
    assert trainer.syncs == {(trainer.source, 0): "initial", (trainer.source, 1): 0, (trainer.source, 2): 1}
    assert trainer.weight_versions == {"0": "initial", "1": 0, "2": 1}
    assert trainer.end is not None
    assert trainer.last_ns == trainer.end.at_ns


def test_copies_with_a_part_each_are_united_and_nothing_counts_twice(tmp_path):
    made = write_synthetic_run(tmp_path / "a")
    copy = tmp_path / "b" / "synthetic"
    shutil.copytree(made.folder, copy)
    whole = phases(read_run([made.folder]))
    # One node's folder lacks a trainer, the other holds a shorter copy of the driver's file.
    record_path(made, made.trainers[0]).unlink()
    shorter = next(copy.glob(f"records/*/{made.driver.process.incarnation}.jsonl"))
    content = shorter.read_bytes()
    shorter.write_bytes(content[: len(content) // 2])
    run = read_run([copy, made.folder, made.folder, made.folder / "records" / ".."])
    assert sorted(phases(run), key=str) == sorted(whole, key=str)
    assert run.damage == []


def test_copies_that_disagree_are_reported(tmp_path):
    made = write_synthetic_run(tmp_path / "a")
    copy = tmp_path / "b" / "synthetic"
    shutil.copytree(made.folder, copy)
    path = next(copy.glob(f"records/*/{made.driver.process.incarnation}.jsonl"))
    path.write_bytes(path.read_bytes().replace(b'"generate"', b'"GENERATE"'))
    (one,) = read_run([made.folder, copy]).damage
    assert one.kind == "differs"
    assert "is no copy of" in one.reason


def test_rotated_segments_and_the_current_one_are_one_process(tmp_path):
    made = write_synthetic_run(tmp_path)
    path = record_path(made, made.trainers[0])
    lines = made.trainers[0].lines
    later = schema.Process(**{f: getattr(lines[0], f) for f in lines[0].__struct_fields__} | {"segment": 1})
    rotated = path.with_name(path.name.replace(".jsonl", ".000.jsonl.gz"))
    rotated.write_bytes(gzip.compress(schema.encode_lines(lines[:10])))
    path.write_bytes(schema.encode_lines([later, *lines[10:]]))
    run = read_run([made.folder])
    trainer = next(r for r in run.processes if r.process.incarnation == lines[0].incarnation)
    assert [segment.path.name for segment in trainer.segments] == [rotated.name, path.name]
    assert list(trainer.phases()) == [line for line in lines if isinstance(line, schema.Phase)]


def test_copy_taken_before_rotation_counts_once(tmp_path):
    made = write_synthetic_run(tmp_path / "new")
    path = record_path(made, made.trainers[0])
    early = tmp_path / "old" / "synthetic" / path.relative_to(made.folder)
    early.parent.mkdir(parents=True)
    content = path.read_bytes()
    early.write_bytes(content[: content.index(b"\n", len(content) // 2) + 1])
    rotated = path.with_name(path.name.replace(".jsonl", ".000.jsonl.gz"))
    rotated.write_bytes(gzip.compress(content))
    path.unlink()
    run = read_run([made.folder, tmp_path / "old" / "synthetic"])
    trainer = next(r for r in run.processes if r.process.pid == 200)
    assert [segment.path for segment in trainer.segments] == [rotated]
    assert run.damage == []


def test_missing_segment_is_reported(tmp_path):
    made = write_synthetic_run(tmp_path)
    path = record_path(made, made.driver)
    path.rename(path.with_name(path.name.replace(".jsonl", ".002.jsonl")))
    kinds = [(one.kind, one.reason) for one in read_run([made.folder]).damage]
    assert kinds == [("missing", "segment 0 of this process"), ("missing", "segment 1 of this process")]


def test_ranks_that_should_be_there_are_missed_by_number(tmp_path):
    made = write_synthetic_run(tmp_path, trainers=4, engines=1)
    record_path(made, made.trainers[2]).unlink()
    seen = {ranks.role: ranks for ranks in read_run([made.folder]).role_ranks()}
    assert (sorted(seen["actor"].seen), seen["actor"].world_size, seen["actor"].missing) == (
        [0, 1, 3],
        4,
        [2],
    )
    assert seen["engine"].missing == []


def test_identity_that_became_known_later_names_the_process(tmp_path):
    process = ProcessFile("r", pid=5)
    process.lines.append(schema.Identity(at_ns=1, role="actor", rank=3, ranks={"tp": 1}, world_size=8))
    process.lines.append(schema.Identity(at_ns=2, ranks={"tp": 1, "pp": 0}))
    process.write(tmp_path)
    (records,) = read_run([tmp_path / "r"]).processes
    who = records.process
    assert (who.role, who.rank, who.ranks, who.world_size) == ("actor", 3, {"tp": 1, "pp": 0}, 8)


def test_open_phase_is_superseded_by_its_phase_in_whichever_order(tmp_path):
    process = ProcessFile("r", pid=5, role="actor", rank=0)
    process.open("train_step", 10, 20)  # id 1
    process.open("barrier", 12, 20)  # id 2, stays open
    process.lines.append(schema.Phase(id=1, name="train_step", start_ns=10, dur_ns=30, tid=5))
    process.lines.append(schema.Phase(id=9, name="sleep", start_ns=50, dur_ns=5, tid=5))
    process.lines.append(schema.Open(id=9, name="sleep", start_ns=50, seen_ns=54, tid=5))
    process.write(tmp_path)
    (records,) = read_run([tmp_path / "r"]).processes
    assert [(line.id, line.name) for line in records.opens] == [(2, "barrier")]


def test_folder_of_runs_is_told_from_a_run(tmp_path):
    write_synthetic_run(tmp_path, run_id="b", rollouts=1)
    write_synthetic_run(tmp_path, run_id="a", rollouts=1)
    (tmp_path / "other").mkdir()
    assert find_runs(tmp_path, []) == [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(FolderOfRunsError, match="holds 2 runs, name one: a, b") as caught:
        read_run([tmp_path])
    assert caught.value.runs == [tmp_path / "a", tmp_path / "b"]


def test_folders_of_different_runs_are_not_united(tmp_path):
    first = write_synthetic_run(tmp_path, run_id="b", rollouts=1)
    second = write_synthetic_run(tmp_path, run_id="a", rollouts=1)
    with pytest.raises(ReadError, match=r"different runs: .*b is b, .*a is a"):
        read_run([first.folder, second.folder])


def test_run_without_its_run_file_is_named_by_its_records(tmp_path):
    made = write_synthetic_run(tmp_path, run_id="named")
    (made.folder / "run.json").unlink()
    moved = made.folder.rename(tmp_path / "elsewhere")
    assert read_run([moved]).run_id == "named"


@pytest.mark.parametrize("there", [True, False])
def test_folder_that_is_no_run_is_an_error_with_its_name(tmp_path, there):
    folder = tmp_path / "x"
    if there:
        folder.mkdir()
    with pytest.raises(ReadError, match=r"x.* is no run folder" if there else r"x: no such folder"):
        read_run([folder])


def test_files_that_cannot_be_used_are_refused_by_name_and_the_rest_is_read(tmp_path):
    made = write_synthetic_run(tmp_path)
    records = made.folder / "records" / "host0"
    (records / "1-1.jsonl").write_bytes(b"")
    (records / "2-2.jsonl").write_bytes(b"garbage\n")
    newer = json.loads(schema.encode_lines(made.driver.lines[:1])) | {"version": "2.1", "pid": 3}
    (records / "3-3.jsonl").write_text(json.dumps(newer) + "\n")
    foreign = ProcessFile("other", pid=4)
    (records / "4-4.jsonl").write_bytes(schema.encode_lines(foreign.lines))
    (records / "notes.txt").write_text("hello")
    run = read_run([made.folder])
    assert len(run.processes) == 5
    told = {one.file.rsplit("/", 1)[1]: (one.kind, one.reason) for one in run.damage}
    assert told == {
        "1-1.jsonl": ("refused", "the file is empty"),
        "2-2.jsonl": ("refused", "no readable process line"),
        "3-3.jsonl": ("refused", "record version 2.1 is newer than 1.0, the newest this reader knows"),
        "4-4.jsonl": ("refused", "belongs to run other"),
    }
    assert [path.name for path in run.ignored] == ["notes.txt"]


def test_windows_are_found_and_an_unfinished_export_is_read_as_truncated(tmp_path):
    made = write_synthetic_run(tmp_path)
    event = {"ph": "X", "name": "a", "pid": 200, "tid": 200, "ts_ns": 1, "dur_ns": 1}
    whole = write_trace_window(tmp_path, made.trainers[0], [0], [event])
    cut = write_trace_window(tmp_path, made.trainers[1], [1], [event])
    unfinished = cut.with_name(cut.name + ".tmp")
    unfinished.write_bytes(gzip.decompress(cut.read_bytes()))
    cut.unlink()
    (whole.parent / "stray.json").write_text("{}")
    run = read_run([made.folder])
    assert [(w.rollout, w.role, w.rank, w.covers, w.path) for w in run.windows] == [
        (0, "actor", 0, [0], whole),
        (1, "actor", 1, [1], unfinished),
    ]
    assert [(one.kind, one.reason) for one in run.damage] == [
        ("truncated", "the export of this window did not finish")
    ]
    assert [path.name for path in run.ignored] == ["stray.json"]


def test_a_made_up_run_of_many_ranks_has_them_all(tmp_path):
    made = write_synthetic_run(tmp_path, trainers=150, engines=3, rollouts=1)
    run = read_run([made.folder])
    assert [(r.role, len(r.seen), r.missing) for r in run.role_ranks()] == [
        ("actor", 150, []),
        ("engine", 3, []),
    ]
