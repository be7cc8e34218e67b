"""Threads of ours do not get in the way of the program's signals, nor its trace functions in theirs."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from recordings import read_recording, run_program

from slime_profiler_plugin import timeline
from slime_profiler_plugin.record._compress import Compressor
from slime_profiler_plugin.record._threads import new_thread, start_thread


def blocked_by(tid: int) -> set[int]:
    status = Path(f"/proc/self/task/{tid}/status").read_text()
    (mask,) = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigBlk:")]
    return {number for number in signal.valid_signals() if mask >> (number - 1) & 1}


def test_the_writer_takes_no_signal(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert timeline.start({"out": str(tmp_path), "outputs": {"nvtx": False}}, run_id="run")
    (writer,) = [t for t in threading.enumerate() if t.name == "slime_profiler_writer"]
    assert writer.native_id is not None
    blocked = blocked_by(writer.native_id)
    timeline.stop()
    assert {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD, signal.SIGPROF} <= blocked
    assert not {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT} & blocked
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_neither_does_the_compressor(tmp_path: Path) -> None:
    blocked: list[set[int]] = []

    def lost(_reason: str) -> None:
        blocked.append(blocked_by(threading.get_native_id()))

    compressor = Compressor(lost)
    compressor.add(tmp_path / "missing.json")
    assert compressor.close(60)
    assert signal.SIGTERM in blocked[0]


def test_a_thread_that_cannot_be_started_leaves_the_signals_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with pytest.raises(RuntimeError, match="new thread"):
        start_thread(new_thread(lambda: None, "x"))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_the_compressor_does_not_wait_for_itself(tmp_path: Path) -> None:
    waited: list[bool] = []
    compressor = Compressor(lambda _reason: waited.append(compressor.close(60)))
    compressor.add(tmp_path / "missing.json")
    assert compressor.close(60)
    assert waited == [False]


@pytest.mark.parametrize("hook", ["settrace", "setprofile"])
def test_trace_functions_that_raise_are_not_called(
    tmp_path: Path, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uncaught: list[object] = []
    monkeypatch.setattr(threading, "excepthook", uncaught.append)

    def raising(*_arguments: object) -> None:
        raise ValueError("theirs")

    before = {"settrace": threading.gettrace(), "setprofile": threading.getprofile()}[hook]
    getattr(threading, hook)(raising)
    try:
        assert timeline.start({"out": str(tmp_path), "outputs": {"nvtx": False}}, run_id="run")
        with timeline.phase("x"):
            pass
        timeline.stop()
    finally:
        getattr(threading, hook)(before)
    got = read_recording(tmp_path)
    assert [p.name for p in got.phases] == ["x"]
    assert got.end.reason == "stop"
    assert uncaught == []


def test_a_program_that_waits_for_a_blocked_signal_gets_it(tmp_path: Path) -> None:
    """Also where nvtx, and with it numpy and the threads of its BLAS, are loaded by us."""
    pytest.importorskip("nvtx")
    program = """
import os, signal, sys
from slime_profiler_plugin import timeline
assert timeline.start({"out": sys.argv[1]}, run_id="run")
with timeline.phase("x"):
    pass
timeline.flush()
signals = {signal.SIGUSR1, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
os.kill(os.getpid(), signal.SIGUSR1)
os.kill(os.getpid(), signal.SIGTERM)
print(sorted((signal.sigwait(signals), signal.sigwait(signals))))
"""
    child = run_program(program, str(tmp_path))
    assert (child.returncode, child.stderr) == (0, "")
    assert child.stdout == f"{sorted((signal.SIGUSR1, signal.SIGTERM))}\n"
