"""Exports that are damaged, cut or none at all, and reports that cannot be exported."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from nsys_events import read_export
from nsys_export import KERNEL, RUNTIME, call, kernel, nvtx, strings, two_processes, write_export

from slime_profiler_plugin.read import ReadError, TraceRefusedError, _nsys_report
from slime_profiler_plugin.read.nsys import is_nsys_report
from slime_profiler_plugin.read.traces import open_trace

PAGE = 4096
HALF_AN_EXPORT = """
import sys
open(next(a for a in sys.argv if a.startswith("--output="))[9:], "w").write("half")
print("no such report")
raise SystemExit(3)
"""


def long_export(path: Path) -> Path:
    """Calls and kernels enough for many pages each."""
    return write_export(
        path,
        {
            "StringIds": strings("cudaLaunchKernel", "k", "k"),
            RUNTIME: [call(n, n + 1, 5, n) for n in range(2000)],
            KERNEL: [kernel(n, n + 1, 5, n) for n in range(2000)],
        },
    )


def test_a_cut_export_gives_what_is_left_and_says_so(tmp_path: Path) -> None:
    path = long_export(tmp_path / "r.sqlite")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2 // PAGE * PAGE])
    read = read_export(path)
    calls, kernels = read.cat("cuda_runtime"), read.cat("kernel")
    assert 0 < len(calls) + len(kernels) < 4000
    assert {(c.start, c.dur) for c in calls + kernels} <= {(n, 1) for n in range(2000)}
    kinds = {kind for kind, _ in read.notes()}
    assert kinds == {"truncated"}
    assert all("malformed" in reason for _, reason in read.notes())


def test_a_damaged_page_costs_its_table_the_rest(tmp_path: Path) -> None:
    path = long_export(tmp_path / "r.sqlite")
    content = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute(f"select rootpage from sqlite_master where name = '{KERNEL}'").fetchone()
    content[(root - 1) * PAGE : root * PAGE] = b"\xff" * PAGE
    path.write_bytes(bytes(content))
    read = read_export(path)
    assert len(read.cat("cuda_runtime")) == 2000
    assert read.cat("kernel") == []
    assert {kind for kind, _ in read.notes()} == {"corrupt"}
    assert any(reason.startswith(KERNEL) for _, reason in read.notes())


def test_rows_that_are_gone_without_a_trace_are_told(tmp_path: Path) -> None:
    path = write_export(tmp_path / "r.sqlite", two_processes())
    content = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute(
            f"select rootpage from sqlite_master where name = '{RUNTIME}'"
        ).fetchone()
    content[(root - 1) * PAGE + 4] = 1  # its page says that it has one row, not three
    path.write_bytes(bytes(content))
    read = read_export(path)
    assert len(read.cat("cuda_runtime")) == 1
    ((kind, reason),) = read.notes()
    assert kind == "corrupt"
    assert reason.startswith("the file: ")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"SQLite format 3\0", "truncated SQLite database"),
        (b"SQLite format 3\0" + b"\xff" * 5000, "SQLite database"),
    ],
)
def test_what_is_no_database_within_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "r.sqlite"
    path.write_bytes(content)
    with pytest.raises(TraceRefusedError, match=says) as refused:
        open_trace(path)
    assert str(path) in str(refused.value)


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = write_export(tmp_path / "r.sqlite", {"users": [{"id": 1, "name": "x"}]})
    with pytest.raises(TraceRefusedError, match="no export of Nsight Systems"):
        open_trace(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="No such file"):
        open_trace(tmp_path / "r.sqlite")


def test_rows_without_a_usable_time_are_counted(tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "NVTX_EVENTS": [
            nvtx(59, 1, 2, 5, text="whole"),
            nvtx(59, "x", 2, 5, text="a"),  # type: ignore[arg-type]
            nvtx(59, 1, 1 << 62, 5, text="b"),
            nvtx(59, 1.5, 2, 5, text="c"),  # type: ignore[arg-type]
            nvtx(59, 3.0, 4.0, 5, text="whole too"),  # type: ignore[arg-type]
        ],
        RUNTIME: [call(None, 2, 5, 1), call(1, None, 5, 2)],  # type: ignore[arg-type]
        KERNEL: [kernel(9, 7, 5, 3)],
    }
    read = read_export(write_export(tmp_path / "r.sqlite", tables))
    assert [(e.name, e.start, e.dur) for e in read.of("X")] == [
        ("whole", 1, 1),
        ("whole too", 3, 1),
        ("call", 1, 8),  # open: to the end of the capture
        ("kernel", 9, -2),  # as it stands
    ]
    assert [(d.kind, d.lost) for d in read.damage] == [("corrupt", 4)]


def test_text_that_is_no_text_is_replaced_and_counted(tmp_path: Path) -> None:
    path = write_export(tmp_path / "r.sqlite", {"NVTX_EVENTS": [nvtx(59, 1, 2, 5, text="?")]})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("update NVTX_EVENTS set text = cast(x'61ff62' as text)")
        connection.commit()
    read = read_export(path)
    assert [e.name for e in read.of("X")] == ["a\ufffdb"]
    assert {kind for kind, _ in read.notes()} == {"replaced"}


def test_odd_values_are_no_failure(tmp_path: Path) -> None:
    tables = two_processes()
    tables[KERNEL] = [
        kernel(1, 2, 111, 1, globalPid="x", streamId=None, deviceId=None, correlationId=None),
        kernel(3, 4, 111, 1, streamId="s", deviceId=b"d", correlationId=-1, demangledName=b"\xff"),
    ]
    tables[RUNTIME] = [call(1, 2, 111, -1), call(1, 2, 111, 1 << 50), call(1, 2, 111, 1, globalTid=None)]
    read = read_export(write_export(tmp_path / "r.sqlite", tables))
    assert len(read.cat("kernel")) == 2
    assert len(read.cat("cuda_runtime")) == 3
    assert read.arrows() == []


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"NVIDIA Tegra Profiler Report 1.\n and what only nsys can read")
    return path


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Put an ``nsys`` on the PATH, the only program there."""
    folder.mkdir()
    nsys = folder / "nsys"
    nsys.write_text(f"#!{sys.executable}\n{program}")
    nsys.chmod(nsys.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(_nsys_report, "_exported", {})


def test_a_report_is_known_by_its_content_or_its_name(report: Path, tmp_path: Path) -> None:
    assert is_nsys_report(report)
    renamed = report.rename(tmp_path / "a.bin")
    assert is_nsys_report(renamed)
    other = tmp_path / "later.nsys-rep"
    other.write_bytes(b"another format")
    assert is_nsys_report(other)


def test_without_nsys_a_report_is_refused_with_what_to_do(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TraceRefusedError, match=r"nsys export --type sqlite run\.nsys-rep"):
        open_trace(report)


def test_a_report_is_exported_once_and_the_export_removed(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = write_export(tmp_path / "made.sqlite", two_processes())
    calls = tmp_path / "calls"
    program = (
        "import shutil, sys\n"
        f"open({str(calls)!r}, 'a').write('x')\n"
        "out = next(a for a in sys.argv if a.startswith('--output='))\n"
        f"shutil.copy({str(made)!r}, out.removeprefix('--output='))\n"
    )
    removals: list[tuple[Any, ...]] = []
    monkeypatch.setattr(_nsys_report.atexit, "register", lambda *call: removals.append(call))
    install(tmp_path / "bin", monkeypatch, program)
    assert len(read_export(report).cat("kernel")) == 2
    assert calls.read_text() == "x"
    ((remove, folder, owner),) = removals
    assert folder.is_dir()
    remove(folder, owner + 1)  # a forked child: not its folder
    assert folder.is_dir()
    remove(folder, os.getpid())
    assert not folder.exists()


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (HALF_AN_EXPORT, "nsys export: status 3: no such report"),
        ("pass", "it made nothing of it"),
        ("import time; time.sleep(60)", "it had not ended after 1 s"),
    ],
)
def test_an_export_that_fails_or_hangs_is_refused(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, says: str
) -> None:
    install(tmp_path / "bin", monkeypatch, program)
    monkeypatch.setattr(_nsys_report, "_EXPORT_S", 1.0)
    monkeypatch.setattr(_nsys_report.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(TraceRefusedError, match=says):
        open_trace(report)
    assert not list(tmp_path.glob("slime-profiler-nsys-*"))


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_changes_that_are_not_in_the_file_yet_are_told(tmp_path, suffix):
    path = long_export(tmp_path / "r.sqlite")
    before = read_export(path)
    assert before.damage == []
    beside = path.with_name(f"r.sqlite{suffix}")
    beside.write_bytes(b"")
    assert read_export(path).damage == []
    beside.write_bytes(b"changes")
    read = read_export(path)
    assert read.events == before.events
    assert [(one.kind, f"r.sqlite{suffix}" in one.reason) for one in read.damage] == [("truncated", True)]


def test_an_export_that_only_its_journal_knows_is_refused_by_its_name(tmp_path):
    path = tmp_path / "r.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma journal_mode = wal")
        database.execute("create table StringIds (id integer primary key, value text)")
        with pytest.raises(TraceRefusedError, match=r"what stands in r\.sqlite-wal is not read"):
            open_trace(path)


@pytest.mark.parametrize("began", [0, -5, "soon", 1 << 62, None])
def test_a_session_that_began_at_no_time_has_no_clock(tmp_path, began):
    path = write_export(
        tmp_path / "r.sqlite",
        {"NVTX_EVENTS": [nvtx(59, 1, 2, 5)], "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": began}]},
    )
    assert open_trace(path).header.base_ns is None
