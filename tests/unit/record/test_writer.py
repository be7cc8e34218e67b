"""The writer thread: what it writes when, and what it does with what cannot be written."""

from __future__ import annotations

import errno
import logging
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from recordings import read_file, read_recording, record_files, stop

from slime_profiler_plugin import schema, timeline
from slime_profiler_plugin.record import _writer
from slime_profiler_plugin.record._spans import MOST_OPEN_SPANS


def start(out: Path, **records: Any) -> None:
    config = {"out": str(out), "outputs": {"nvtx": False}, "records": {"period_s": 3600, **records}}
    assert timeline.start(config, run_id="run")


def test_a_flush_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    start(tmp_path)
    for n in range(3):
        with timeline.phase("x", step=n):
            pass
        timeline.flush()
        (path,) = record_files(tmp_path)
        lines = read_file(path)
        assert [line.step for line in lines if isinstance(line, schema.Phase)] == list(range(n + 1))
        assert isinstance(lines[-1], schema.Clock)
    clocks = stop(tmp_path).all(schema.Clock)
    assert len(clocks) == 4
    assert [c.mono_ns for c in clocks] == sorted(c.mono_ns for c in clocks)


def test_the_first_line_says_who_writes_and_how(tmp_path: Path) -> None:
    start(tmp_path, period_s=7.5)
    with timeline.phase("x"):
        pass
    got = stop(tmp_path)
    process = got.lines[0]
    (path,) = record_files(tmp_path)
    assert path.name == f"{process.incarnation}.jsonl"
    assert (process.pid, process.run_id, process.attempt, process.segment) == (os.getpid(), "run", 0, 0)
    assert process.period_s == 7.5
    assert process.config["records"]["period_s"] == 7.5
    assert process.versions["slime_profiler_plugin"]
    assert process.start_ns <= got.one("x").start_ns
    assert f"{process.pid}-{process.start_unix_ns}" == process.incarnation


def test_it_writes_without_being_asked(tmp_path: Path) -> None:
    """Once a period, and when a full write has gathered."""
    written = threading.Event()
    real = os.write

    def write(fd: int, data: Any) -> int:
        if threading.current_thread().name == "slime_profiler_writer":
            written.set()
        return real(fd, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", write)
        start(tmp_path / "a", period_s=0.01)
        with timeline.phase("x"):
            pass
        assert written.wait(60)
        timeline.stop()
        written.clear()
        start(tmp_path / "b", flush_bytes=1000)
        for _ in range(20):
            with timeline.phase("x"):
                pass
        assert written.wait(60)
        timeline.stop()


@pytest.mark.parametrize("fsync", [True, False])
def test_fsync_is_an_option_and_done_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool
) -> None:
    synced: list[int] = []
    start(tmp_path, fsync=fsync)
    monkeypatch.setattr(os, "fsync", synced.append)  # after the start, which syncs files of its own
    with timeline.phase("x"):
        pass
    timeline.flush()
    assert len(synced) == fsync
    stop(tmp_path)
    assert len(synced) == 1 + fsync


def test_names_may_be_anything(tmp_path: Path) -> None:
    start(tmp_path)
    for name in (7, None, ("a", 1), "näme", "\ud800", ["no", "hash"]):
        with timeline.phase(name):  # type: ignore[arg-type]
            pass
    with timeline.phase("after"):
        pass
    got = stop(tmp_path)
    assert [p.name for p in got.phases] == ["7", "None", "<tuple>", "näme", "?", "after"]
    assert [(d.what, d.reason, d.count) for d in got.drops] == [("phase", "cannot be encoded", 1)]


def test_a_line_that_cannot_be_encoded_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = schema.encode_lines

    def refuse(lines: list[Any]) -> bytes:
        if any(getattr(line, "attrs", None) == {"bad": 1} for line in lines):
            raise OverflowError("too big")
        return encode(lines)

    monkeypatch.setattr(schema, "encode_lines", refuse)
    start(tmp_path)
    for fields in ({}, {"bad": 1}, {"good": 1}):
        with timeline.phase("x", **fields):
            pass
    got = stop(tmp_path)
    assert [p.attrs for p in got.phases] == [{}, {}, {"good": 1}]
    assert [(d.what, d.reason, d.names) for d in got.drops] == [("attrs", "cannot be encoded", {"x": 1})]


def test_awkward_fields_of_what_is_open_cost_no_other(tmp_path: Path) -> None:
    class Gone:
        pass

    gone = Gone()
    start(tmp_path)
    timeline.begin("proxy", owner=weakref.proxy(gone), step=weakref.proxy(gone))
    del gone
    timeline.begin("number", digits=10**5000)
    timeline.begin("plain", size=3)
    with timeline.phase("x"):
        pass
    got = stop(tmp_path)
    assert [(line.name, line.attrs) for line in got.all(schema.Open)] == [
        ("proxy", {"owner": "<ProxyType>", "step": "<ProxyType>"}),
        ("number", {"digits": "<int of 16610 bits>"}),
        ("plain", {"size": 3}),
    ]
    assert [p.name for p in got.phases] == ["x"]
    assert got.drops == []


def test_an_open_line_that_cannot_be_made_is_written_without_attrs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = _writer.open_line

    def refuse(record: Any, seen_ns: int) -> schema.Open:
        if record.fields:
            raise RuntimeError("dictionary changed size during iteration")
        return real(record, seen_ns)

    monkeypatch.setattr(_writer, "open_line", refuse)
    start(tmp_path)
    timeline.begin("awkward", a=1)
    timeline.begin("plain")
    got = stop(tmp_path)
    assert [(line.name, line.attrs) for line in got.all(schema.Open)] == [("awkward", {}), ("plain", {})]
    assert [(d.what, d.reason, d.names) for d in got.drops] == [
        ("attrs", "cannot be encoded", {"awkward": 1})
    ]


def test_spans_that_never_end_are_listed_at_the_end_and_bounded(tmp_path: Path) -> None:
    start(tmp_path)
    for _ in range(MOST_OPEN_SPANS + 50):
        timeline.begin("lost")
    assert len(stop(tmp_path).all(schema.Open)) == MOST_OPEN_SPANS


def test_a_phase_that_outlives_the_recording_does_no_harm(tmp_path: Path) -> None:
    start(tmp_path)
    with timeline.phase("outer"):
        span = timeline.begin("span")
        got = stop(tmp_path)
    span.end()
    assert {line.name for line in got.all(schema.Open)} == {"outer", "span"}
    assert not got.phases
    assert got.end.counts["open"] == 2


@pytest.mark.parametrize("call", ["flush", "stop"])
def test_in_the_writer_thread_nobody_waits_for_it(tmp_path: Path, call: str) -> None:
    """As in a logging handler, or in the `__del__` of what was recorded."""
    called_in: list[str] = []

    class Told(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            called_in.append(threading.current_thread().name)
            getattr(timeline, call)()

    handler = Told()
    logger = logging.getLogger("slime_profiler_plugin")
    logger.addHandler(handler)
    try:
        start(tmp_path)
        recorder: Any = timeline._recorder
        with timeline.phase("first"):
            pass
        with pytest.MonkeyPatch.context() as patch:
            real, failures = os.write, [OSError(errno.EIO, "bad disk")]

            def write(fd: int, data: bytes) -> int:
                if failures:
                    raise failures.pop()
                return real(fd, data)

            patch.setattr(os, "write", write)
            timeline.flush()
            if call == "stop":
                wait_for_the_writer()
        with timeline.phase("second"):
            pass
        timeline.stop()
        recorder._sigterm.remove()  # only the main thread can
    finally:
        logger.removeHandler(handler)
    assert called_in == ["slime_profiler_writer"]
    got = read_recording(tmp_path)
    got.check_counts()
    assert [p.name for p in got.phases] == (["second"] if call == "flush" else [])
    assert [(d.what, d.reason, d.names) for d in got.drops] == [
        ("phase", "write failed: bad disk", {"first": 1})
    ]


def wait_for_the_writer() -> None:
    for thread in threading.enumerate():
        if thread.name == "slime_profiler_writer":
            thread.join(60)
