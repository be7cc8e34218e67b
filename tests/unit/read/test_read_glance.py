"""A quick look says the same as reading everything, where it says anything."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path

import pytest

from slime_profiler_plugin import schema
from slime_profiler_plugin.read import Damage, Glance, glance_processes, read_run
from slime_profiler_plugin.testing import MS, ProcessFile, write_synthetic_run

S = 1000 * MS


def glance(folder: Path) -> tuple[list[Glance], list[Damage], list[Path]]:
    damage: list[Damage] = []
    ignored: list[Path] = []
    return glance_processes(folder, damage, ignored), damage, ignored


def one(folder: Path) -> Glance:
    (found,), damage, ignored = glance(folder)
    assert (damage, ignored) == ([], [])
    return found


def long_process(rollouts: int = 400, **fields: object) -> ProcessFile:
    """So many lines that its middle is not read: 100 ms a rollout, 5 phases each."""
    process = ProcessFile("r", pid=7, role="actor", rank=3, world_size=4, start_ns=S, **fields)
    for rollout in range(rollouts):
        at = 2 * S + rollout * 100 * MS
        for step in range(5):
            process.phase("train_step", at + step * MS, at + step * MS + MS, rollout=rollout, step=step)
        process.clock(at + 10 * MS)
    return process


def test_small_run_is_seen_whole(tmp_path: Path) -> None:
    made = write_synthetic_run(tmp_path)
    found, damage, ignored = glance(made.folder)
    assert (damage, ignored) == ([], [])
    whole = read_run([made.folder]).processes
    assert [g.key for g in found] == [r.key for r in whole]
    for seen, records in zip(found, whole, strict=True):
        assert seen.process == records.process
        assert seen.end == records.end is not None
        assert seen.last_ns == records.last_ns
        assert seen.clock_pairs == records.clock_pairs
        assert seen.rollouts == set(records.extents)
        (path,) = seen.files
        assert seen.bytes == path.stat().st_size


def test_of_a_long_file_the_first_and_the_last_rollouts_are_seen(tmp_path: Path) -> None:
    process = long_process()
    process.end(60 * S)
    size = process.write(tmp_path).stat().st_size
    seen = one(tmp_path / "r")
    (records,) = read_run([tmp_path / "r"]).processes
    assert seen.bytes == size > 2 * 100_000
    assert (seen.last_ns, seen.end) == (records.last_ns, records.end)
    assert seen.last_unix_ns == process.epoch_ns + 60 * S
    assert {0, 399} <= seen.rollouts
    assert 150 not in seen.rollouts
    assert set(range(390, 400)) <= seen.rollouts <= set(records.extents)


def test_last_sign_of_life_counts_as_for_the_whole(tmp_path: Path) -> None:
    process = long_process()
    process.open("weight_sync", 50 * S, 57 * S, rollout=400)
    process.lines.append(schema.Drop(at_ns=58 * S, what="phase", reason="full queue"))
    process.phase("barrier", 10 * S, 9 * S)  # of negative length, no sign of anything
    process.lines.append(
        schema.Device(
            id=1, device_type="cuda", device_index=0, stream=7, start_ns=70 * S, dur_ns=S, uncertainty_ns=1
        )
    )
    process.write(tmp_path)
    seen = one(tmp_path / "r")
    (records,) = read_run([tmp_path / "r"]).processes
    assert seen.last_ns == records.last_ns == 58 * S
    assert 400 in seen.rollouts
    assert seen.end is None


def test_rotated_segments_are_one_process(tmp_path: Path) -> None:
    process = long_process(30)
    path = process.write(tmp_path)
    first = path.with_name(path.name.replace(".jsonl", ".000.jsonl.gz"))
    first.write_bytes(gzip.compress(path.read_bytes()))
    middle = path.with_name(path.name.replace(".jsonl", ".001.jsonl"))
    header = process.process
    header.segment = 1
    middle.write_bytes(schema.encode_lines([header, schema.Clock(mono_ns=8 * S, unix_ns=9 * S, error_ns=1)]))
    last = long_process(3)
    header.segment, header.rank = 2, 5  # it was told so in between
    last.lines[0] = header
    last.end(90 * S)
    path.write_bytes(schema.encode_lines(last.lines))
    seen = one(tmp_path / "r")
    assert seen.files == [first, middle, path]
    assert seen.bytes == sum(file.stat().st_size for file in seen.files)
    assert (seen.process.rank, seen.process.segment) == (5, 0)
    assert seen.end is not None
    assert seen.last_ns == 90 * S
    assert seen.rollouts >= {0, 2}


def test_last_segment_that_is_empty_or_compressed_leaves_the_one_before(tmp_path: Path) -> None:
    process = long_process()
    process.end(60 * S)
    path = process.write(tmp_path)
    packed = path.with_name(path.name.replace(".jsonl", ".000.jsonl.gz"))
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.write_bytes(b"")
    for _ in range(2):
        seen = one(tmp_path / "r")
        assert (seen.last_ns, seen.end is None) == (60 * S, False)
        assert {0, 399} <= seen.rollouts
        assert 150 not in seen.rollouts
        path.unlink(missing_ok=True)


def test_segment_that_is_being_compressed_counts_once(tmp_path: Path) -> None:
    process = long_process(3)
    path = process.write(tmp_path)
    aside = path.rename(path.with_name(path.name.replace(".jsonl", ".000.jsonl")))
    aside.with_name(aside.name + ".gz").write_bytes(gzip.compress(aside.read_bytes()))
    seen = one(tmp_path / "r")
    assert seen.files == [aside]


@pytest.mark.parametrize("rollouts", [3, 400])
def test_torn_last_line_is_told_and_the_one_before_counts(tmp_path: Path, rollouts: int) -> None:
    process = long_process(rollouts)
    process.clock(55 * S)
    process.phase("train_step", 56 * S, 57 * S)
    path = process.write(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    (seen,), damage, _ = glance(tmp_path / "r")
    assert seen.last_ns == 55 * S
    (found,) = damage
    assert (found.file, found.kind, found.lost) == (str(path), "truncated", 1)


def test_last_line_that_lacks_only_its_newline_counts(tmp_path: Path) -> None:
    process = long_process()
    process.end(60 * S)
    path = process.write(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    assert one(tmp_path / "r").end is not None


def test_damaged_lines_are_counted_where_they_are_met(tmp_path: Path) -> None:
    process = long_process()
    process.end(60 * S)
    path = process.write(tmp_path)
    lines = path.read_bytes().split(b"\n")
    lines[5] = b'{"kind":"phase","id":'
    lines[1000] = b"\xff\xfe"  # in the middle, which is not looked at
    lines[-5] = b"\0" * 30 + lines[-5]  # a write that failed half-way, and the next one
    lines[-4] = b'{"kind":"clock","mono_ns":"x"}'
    path.write_bytes(b"\n".join(lines))
    (seen,), damage, _ = glance(tmp_path / "r")
    assert [(d.kind, d.lost) for d in damage] == [("corrupt", 1)] * 3
    assert seen.end is not None
    assert 399 in seen.rollouts


def test_lines_of_kinds_that_are_not_known_are_nothing_wrong(tmp_path: Path) -> None:
    process = long_process(1)
    path = process.write(tmp_path)
    path.write_bytes(path.read_bytes() + b'{"kind":"colour","start_ns":"red"}\n{"kind":"hue","deep":{}}\n')
    assert one(tmp_path / "r").rollouts == {0}


def test_one_line_longer_than_what_is_looked_at(tmp_path: Path) -> None:
    process = long_process()
    process.phase("train_step", 56 * S, 57 * S, rollout=400, attrs={"text": "x" * 100_000})
    process.write(tmp_path)
    seen = one(tmp_path / "r")
    assert seen.last_ns == 57 * S
    assert 400 in seen.rollouts


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"hello\n", "no readable process line"),
        (b'{"kind":"process","version":"9.0"}\n', "record version 9.0 is newer than 1.0"),
        (b'{"kind":"process","version":"new"}\n', "no readable process line"),
    ],
)
def test_file_that_cannot_be_used_is_refused_by_name(tmp_path: Path, content: bytes, reason: str) -> None:
    made = write_synthetic_run(tmp_path)
    path = made.folder / "records" / "host0" / "9-99.jsonl"
    path.write_bytes(content)
    found, damage, _ = glance(made.folder)
    assert len(found) == 5
    refused = [d for d in damage if d.kind == "refused"]
    assert [d.file for d in refused] == [str(path)]
    assert refused[0].reason.startswith(reason)


def test_process_of_another_run_and_files_that_are_no_records(tmp_path: Path) -> None:
    made = write_synthetic_run(tmp_path)
    stray = ProcessFile("other", pid=9, role="actor").write(tmp_path)
    moved = stray.rename(made.folder / "records" / "host0" / stray.name)
    notes = made.folder / "records" / "host0" / "notes.txt"
    notes.write_text("hello")
    found, damage, ignored = glance(made.folder)
    assert len(found) == 5
    assert damage == [Damage(str(moved), "refused", "belongs to run other")]
    assert ignored == [notes]


def test_file_that_gets_another_name_meanwhile_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = long_process(3)
    path = process.write(tmp_path)
    aside = path.with_name(path.name.replace(".jsonl", ".000.jsonl"))
    opened = Path.open

    def rotate_first(self: Path, *arguments: object, **more: object) -> object:
        if self == path and not aside.exists():
            path.rename(aside)
        return opened(self, *arguments, **more)

    monkeypatch.setattr(Path, "open", rotate_first)
    assert one(tmp_path / "r").files == [aside]


def test_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    path = long_process(3).write(tmp_path)
    path.unlink()
    path.symlink_to(path)
    found, damage, ignored = glance(tmp_path / "r")
    assert (found, ignored) == ([], [])
    assert damage == [Damage(str(path), "refused", os.strerror(errno.ELOOP))]


def test_file_that_grows_meanwhile_is_seen_as_far_as_it_was(tmp_path: Path) -> None:
    process = long_process()
    path = process.write(tmp_path)
    before = one(tmp_path / "r").last_ns
    process.clock(100 * S)
    with path.open("ab") as stream:
        stream.write(schema.encode_lines(process.lines[-1:])[:-9])
    (seen,), damage, _ = glance(tmp_path / "r")
    assert seen.last_ns == before
    assert [d.kind for d in damage] == ["truncated"]
    with path.open("ab") as stream:
        stream.write(schema.encode_lines(process.lines[-1:])[-9:])
    assert one(tmp_path / "r").last_ns == 100 * S
