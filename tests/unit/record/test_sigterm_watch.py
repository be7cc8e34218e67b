"""The thread that sees a SIGTERM which the main thread does not handle."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from slime_profiler_plugin import timeline
from slime_profiler_plugin.record import _sigterm_watch
from slime_profiler_plugin.record._signals import SigtermFlush
from slime_profiler_plugin.record._sigterm_watch import SigtermWatch


def wakeup_fd() -> int:
    fd = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(fd)
    return fd


@pytest.fixture(autouse=True)
def nobody_has_it() -> None:
    """A recording that another test stopped in a thread leaves what only the main thread can take back."""
    left = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if isinstance(left, SigtermFlush):
        left.remove()
    assert wakeup_fd() == -1


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[str]:
    monkeypatch.setattr(_sigterm_watch, "GRACE_S", 0.05)
    return SimpleQueue()


@pytest.fixture
def watch(blocked: SimpleQueue[str]) -> Iterator[SigtermWatch]:
    watch = SigtermWatch(lambda: blocked.put("blocked"))
    yield watch
    watch.close()
    assert wakeup_fd() == -1


def test_it_is_told_of_sigterm_only(watch: SigtermWatch, blocked: SimpleQueue[str]) -> None:
    assert watch.watching
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)
    assert blocked.get(timeout=60) == "blocked"
    assert blocked.empty()


def test_what_is_handled_is_not_blocked(
    watch: SigtermWatch, blocked: SimpleQueue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sigterm_watch, "GRACE_S", 60)
    watch.handled()
    os.write(watch._writer.fd, bytes([signal.SIGTERM]))
    while not watch._handled.empty():
        os.sched_yield()
    monkeypatch.setattr(_sigterm_watch, "GRACE_S", 0.05)
    os.write(watch._writer.fd, bytes([signal.SIGTERM]))
    assert blocked.get(timeout=60) == "blocked"
    assert blocked.empty()


def test_signals_of_a_forked_child_are_its_own(watch: SigtermWatch, blocked: SimpleQueue[str]) -> None:
    child = os.fork()
    if child == 0:
        status = 1
        try:  # whatever happens, no second test run goes on from here
            status = 0 if os.write(watch._writer.fd, bytes([signal.SIGTERM, 0])) else 1
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    os.write(watch._writer.fd, bytes([signal.SIGTERM]))
    assert blocked.get(timeout=60) == "blocked"
    assert blocked.empty()


def test_a_wakeup_descriptor_that_is_set_stays(blocked: SimpleQueue[str]) -> None:
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno())
        try:
            watch = SigtermWatch(lambda: blocked.put("blocked"))
            assert not watch.watching
            assert wakeup_fd() == writer.fileno()
            watch.close()
            assert wakeup_fd() == writer.fileno()
        finally:
            signal.set_wakeup_fd(-1)


def test_one_that_is_set_later_stays(watch: SigtermWatch) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()
        loop.add_signal_handler(signal.SIGUSR1, told.set_result, None)
        theirs = wakeup_fd()
        watch.close()
        assert wakeup_fd() == theirs
        signal.raise_signal(signal.SIGUSR1)
        await asyncio.wait_for(told, 60)
        loop.remove_signal_handler(signal.SIGUSR1)

    asyncio.run(main())


def test_a_recording_gives_it_back(tmp_path: Path) -> None:
    assert wakeup_fd() == -1
    assert timeline.start({"out": str(tmp_path), "outputs": {"nvtx": False}}, run_id="run")
    with timeline.phase("x"):
        pass
    assert wakeup_fd() > 2
    timeline.stop()
    assert wakeup_fd() == -1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_what_a_stop_in_another_thread_leaves_is_taken_over(tmp_path: Path) -> None:
    for folder, stop_in_thread in (("a", True), ("b", False)):
        assert timeline.start({"out": str(tmp_path / folder), "outputs": {"nvtx": False}}, run_id="run")
        with timeline.phase("x"):
            pass
        if stop_in_thread:
            stopper = threading.Thread(target=timeline.stop)
            stopper.start()
            stopper.join()
        else:
            timeline.stop()
    assert wakeup_fd() == -1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
