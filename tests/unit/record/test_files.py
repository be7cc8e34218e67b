"""The record file: whole lines, segments, and nobody else's file."""

from __future__ import annotations

import errno
import gzip
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import read_file, read_recording, record_files, run_program

from slime_profiler_plugin import schema, timeline
from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.record import _files
from slime_profiler_plugin.record._files import SegmentedFile, TakenError


def path_of(folder: Path) -> Callable[[int | None], Path]:
    return lambda segment: folder / "host" / ("7-1.jsonl" if segment is None else f"7-1.{segment:03d}.jsonl")


class Disk:
    """Stands in for `os.write` on a disk with `room` bytes left, that may also tear."""

    def __init__(self, room: int, code: int = errno.ENOSPC) -> None:
        self.room = room
        self.code = code
        self.write = os.write

    def __call__(self, fd: int, data: bytes) -> int:
        if not self.room:
            raise OSError(self.code, os.strerror(self.code))
        taken = self.write(fd, bytes(data)[: self.room])
        self.room -= taken
        return taken


def test_it_is_made_once_and_belongs_to_one_process(tmp_path: Path) -> None:
    first, second = SegmentedFile(path_of(tmp_path)), SegmentedFile(path_of(tmp_path))
    first.open()
    with pytest.raises(TakenError):
        second.open()
    assert not second.is_open
    first.append(b"a\nb\n")
    first.close()
    assert path_of(tmp_path)(None).read_bytes() == b"a\nb\n"


def test_a_name_is_taken_also_between_two_segments(tmp_path: Path) -> None:
    """Neither takes the other's rotated segment, nor its current one."""
    first, second = SegmentedFile(path_of(tmp_path)), SegmentedFile(path_of(tmp_path))
    first.open()
    first.append(b"a\n")
    first.rotate()
    with pytest.raises(TakenError):
        second.open()
    assert not second.is_open
    first.open()
    first.append(b"b\n")
    first.close()
    assert [p.name for p in sorted((tmp_path / "host").iterdir())] == ["7-1.000.jsonl.gz", "7-1.jsonl"]
    assert gzip.decompress((tmp_path / "host" / "7-1.000.jsonl.gz").read_bytes()) == b"a\n"
    assert path_of(tmp_path)(None).read_bytes() == b"b\n"


@pytest.mark.parametrize("taken", ["{}.jsonl", "{}.000.jsonl", "{}.000.jsonl.gz"])
def test_a_recording_whose_name_is_taken_takes_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, taken: str
) -> None:
    assert timeline.start(
        {"out": str(tmp_path), "outputs": {"nvtx": False}}, run_id="run", role="actor", rank=0
    )
    source = timeline.source()
    assert source is not None
    pid, start = map(int, source.partition("@")[2].split("-"))
    folder = RunPaths(tmp_path, "run").record_file(socket.gethostname(), pid, start).parent
    folder.mkdir(parents=True)
    theirs = [folder / taken.format(f"{pid}-{start + n}") for n in range(2)]
    for path in theirs:
        path.write_bytes(b"theirs\n")
    with timeline.phase("x"):
        pass
    timeline.flush()
    assert timeline.source() == f"actor-0@{pid}-{start + 2}"
    timeline.stop()
    assert [path.read_bytes() for path in theirs] == [b"theirs\n"] * 2
    mine = folder / f"{pid}-{start + 2}.jsonl"
    assert sorted(folder.iterdir()) == sorted([*theirs, mine])
    lines = read_file(mine)
    assert (lines[0].incarnation, lines[0].start_unix_ns) == (f"{pid}-{start + 2}", start + 2)
    assert [line.name for line in lines if isinstance(line, schema.Phase)] == ["x"]
    assert caplog.records == []


@given(
    batches=st.lists(st.lists(st.text("ab", max_size=9), min_size=1, max_size=5), min_size=1, max_size=4),
    room=st.integers(0, 60),
    truncates=st.booleans(),
)
def test_a_disk_that_fills_up_keeps_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[str]], room: int, truncates: bool
) -> None:
    """Whether or not the torn end can be cut off, readers find each kept line whole."""
    folder = tmp_path_factory.mktemp("disk")
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(room)
        patch.setattr(_files.os, "write", disk)
        if not truncates:
            patch.setattr(_files.os, "ftruncate", lambda fd, _size: Disk(0)(fd, b""))
        file = SegmentedFile(path_of(folder))
        file.open()
        kept: list[str] = []
        for batch in batches:
            n, error = file.append("".join(f"<{line}>\n" for line in batch).encode())
            kept += batch[:n]
            assert error is not None or n == len(batch)
        disk.room = 1000  # somebody made room
        assert file.append(b"<last>\n") == (1, None)
        file.close()
    raw = path_of(folder)(None).read_bytes()
    whole = [line for line in raw.decode().split("\n") if line.startswith("<") and line.endswith(">")]
    assert whole == [f"<{line}>" for line in [*kept, "last"]]
    assert file.size == len(raw)
    if truncates:
        assert raw.decode().splitlines() == whole


def test_a_rotated_segment_is_compressed(tmp_path: Path) -> None:
    file = SegmentedFile(path_of(tmp_path))
    file.open()
    file.append(b"a\n" * 1000)
    file.rotate()
    assert not file.is_open
    file.open()
    file.append(b"b\n")
    file.close()
    assert [p.name for p in sorted((tmp_path / "host").iterdir())] == ["7-1.000.jsonl.gz", "7-1.jsonl"]
    packed = (tmp_path / "host" / "7-1.000.jsonl.gz").read_bytes()
    assert gzip.decompress(packed) == b"a\n" * 1000
    assert file.segment == 1
    assert file.total_bytes == len(packed) + 2


def test_a_segment_that_cannot_be_compressed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path, _give_up: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(_files, "compress_file", full)
    file = SegmentedFile(path_of(tmp_path))
    file.open()
    file.append(b"a\n")
    with pytest.raises(OSError, match="full"):
        file.rotate()
    file.open()
    file.append(b"b\n")
    assert file.total_bytes == 4
    assert [p.name for p in sorted((tmp_path / "host").iterdir())] == ["7-1.000.jsonl", "7-1.jsonl"]


def test_segments_of_a_recording_stand_alone(tmp_path: Path) -> None:
    records = {"segment_bytes": 20_000, "flush_bytes": 2_000, "period_s": 3600}
    config = {"out": str(tmp_path), "outputs": {"nvtx": False}, "records": records}
    assert timeline.start(config, run_id="run", role="actor", rank=None)
    for i in range(1000):
        if i == 500:
            timeline.set_identity(rank=3)
        with timeline.phase("train_step", step=i):
            pass
        if i % 10 == 9:
            timeline.flush()
    timeline.stop()
    files = record_files(tmp_path)
    assert len(files) > 3
    assert [p.suffix for p in files] == [".gz"] * (len(files) - 1) + [".jsonl"]
    got = read_recording(tmp_path)
    assert [p.step for p in got.phases] == list(range(1000))
    heads = got.all(schema.Process)
    assert [head.segment for head in heads] == list(range(len(files)))
    assert heads[0].rank is None
    assert heads[-1].rank == 3
    for lines in map(read_file, files):
        assert [type(line) for line in lines[:2]] == [schema.Process, schema.Thread]
        first = next((n for n, line in enumerate(lines) if isinstance(line, schema.Phase)), None)
        definitions = [n for n, line in enumerate(lines) if isinstance(line, schema.PhaseDef)]
        assert first is None or (len(definitions) == 1 and definitions[0] < first)
    got.check_counts()


def take_number(file: SegmentedFile, path: Path) -> int:
    """Close the file's descriptor behind its back, and open `path` under the same number."""
    assert file._descriptor is not None
    fd = file._descriptor.fd
    os.close(fd)
    other = os.open(path, os.O_RDWR | os.O_CREAT)
    os.dup2(other, fd)
    if other != fd:
        os.close(other)
    return fd


def test_a_number_that_the_program_uses_again_is_left_alone(tmp_path: Path) -> None:
    file = SegmentedFile(path_of(tmp_path))
    file.open()
    file.append(b"a\n")
    theirs = take_number(file, tmp_path / "checkpoint")
    assert file.append(b"b\n") == (1, None)
    file.sync()
    assert file.size == 4
    file.close()
    assert os.fstat(theirs).st_size == 0
    os.close(theirs)
    assert path_of(tmp_path)(None).read_bytes() == b"a\nb\n"


@pytest.mark.parametrize("now", ["nothing", "another file"])
def test_a_file_that_was_closed_and_removed_is_given_up(tmp_path: Path, now: str) -> None:
    path = path_of(tmp_path)(None)
    file = SegmentedFile(path_of(tmp_path))
    file.open()
    theirs = take_number(file, tmp_path / "checkpoint")
    if now == "another file":
        (tmp_path / "other").write_bytes(b"theirs\n")
        (tmp_path / "other").replace(path)
    else:
        path.unlink()
    kept, error = file.append(b"b\n")
    assert kept == 0
    assert error is not None
    assert error.errno == (errno.ENOENT if now == "nothing" else errno.ESTALE)
    file.close()
    assert not file.is_open
    assert os.fstat(theirs).st_size == 0
    os.close(theirs)
    assert not path.exists() or path.read_bytes() == b"theirs\n"


def test_a_file_closed_before_the_end_closes_nobody_elses(tmp_path: Path) -> None:
    file = SegmentedFile(path_of(tmp_path))
    file.open()
    theirs = take_number(file, tmp_path / "checkpoint")
    file.close()
    os.write(theirs, b"whole")
    os.close(theirs)


def test_the_standard_streams_are_the_programs(tmp_path: Path) -> None:
    """Also where it has closed them before our file is opened."""
    program = """
import os, sys
from slime_profiler_plugin import timeline
assert timeline.start({"out": sys.argv[1], "outputs": {"nvtx": False}}, run_id="run")
for fd in range(3):
    os.close(fd)
with timeline.phase("x"):
    pass
timeline.flush()
for fd in range(3):
    try:
        os.write(fd, b"a library's words\\n")
    except OSError:
        pass
timeline.stop()
"""
    assert run_program(program, str(tmp_path)).returncode == 0
    got = read_recording(tmp_path)
    assert [p.name for p in got.phases] == ["x"]
    got.check_counts()


def test_a_program_that_closes_all_descriptors(tmp_path: Path) -> None:
    program = """
import os, sys
from slime_profiler_plugin import timeline
assert timeline.start({"out": sys.argv[1], "outputs": {"nvtx": False}}, run_id="run")
with timeline.phase("before"):
    pass
timeline.flush()
os.closerange(3, 256)
files = [open(os.path.join(sys.argv[1], f"checkpoint{n}"), "wb") for n in range(20)]
with timeline.phase("after"):
    pass
timeline.flush()
timeline.stop()
print([os.path.getsize(file.name) for file in files] == [0] * 20)
"""
    child = run_program(program, str(tmp_path))
    assert (child.returncode, child.stdout, child.stderr) == (0, "True\n", "")
    got = read_recording(tmp_path)
    assert [p.name for p in got.phases] == ["before", "after"]
    got.check_counts()


def test_a_program_that_changes_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    config = {"out": "runs", "outputs": {"nvtx": False}}
    assert timeline.start(config, run_id="run")
    monkeypatch.chdir(tmp_path / "elsewhere")
    with timeline.phase("x"):
        pass
    timeline.stop()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert [p.name for p in read_recording(tmp_path / "runs").phases] == ["x"]
