"""The bare demo's loop, rollout by rollout: in between, all its processes wait for what is next.

The loop is the demo's own. What is added stands before `Trainer.train` and, in the engines, in a
thread that sleeps; neither does anything during a rollout. So recording is switched, and the clocks
are read, at the same place of the loop in every process, and outside of what is timed.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Client, Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from _records import writer_cpu_ns

from slime_profiler_plugin._timeline import Timeline, timeline
from slime_profiler_plugin.config import Config
from slime_profiler_plugin.demo import BareRun, ProcessSetup, Settings
from slime_profiler_plugin.demo.trainer import Trainer
from slime_profiler_plugin.identity import LAUNCH_VARIABLE, RUN_ID_VARIABLE

RUN_ID = "overhead"
#: More than any benchmark asks for: the processes are ended, the loop is not.
_ENDLESS = 1_000_000_000


class Times(NamedTuple):
    """Seconds of the wall, and of CPU by all threads."""

    wall: float
    cpu: float


class _Stamp(NamedTuple):
    """Both clocks of a process in ns: monotonic, and CPU of all its threads."""

    mono_ns: int
    cpu_ns: int


class DemoRollouts:
    """A running bare demo, as a context manager: leaving it ends its processes.

    It records its first sync with `config`, so that the later ones have a source to name, and nothing
    from there on.
    """

    def __init__(self, settings: Settings, config: Config) -> None:
        with ExitStack() as stack:
            address = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "line"
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(str(address))
            server.listen()
            setup = ProcessSetup(
                config=config,
                # Kineto tells of every window it begins and ends.
                environment={LAUNCH_VARIABLE: RUN_ID, RUN_ID_VARIABLE: RUN_ID, "KINETO_LOG_LEVEL": "99"},
                prepare=partial(_join, str(address)),
            )
            running = stack.enter_context(
                BareRun(msgspec.structs.replace(settings, rollouts=_ENDLESS), setup)
            )
            processes = [*running.trainers, *running.engines]
            lines: dict[tuple[str, int], Connection] = {}
            while len(lines) < len(processes):
                ready = wait([server, *(process.sentinel for process in processes)])
                if ready != [server]:
                    raise RuntimeError("a process of the demo ended before its loop began")
                line = Connection(server.accept()[0].detach())
                stack.callback(line.close)
                lines[line.recv()] = line
            self._actors = [lines["actor", rank] for rank in range(settings.trainers)]
            self._engines = [lines["engine", index] for index in range(settings.engines)]
            self._all = [*self._actors, *self._engines]
            self._reports = running.reports()
            for line in self._actors:
                line.recv()
            self.stop()
            self._stack = stack.pop_all()

    def __enter__(self) -> DemoRollouts:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, config: Config) -> None:
        """Record in all processes from here on. Raises `RuntimeError` when one cannot."""
        if not all(_ask(self._all, "start", config)):
            raise RuntimeError("a process of the demo does not record: its warning says why")

    def switch(self, *, recording: bool, timed: bool = False) -> None:
        """From here on the recording calls are those that record, or the off ones.

        `timed`: with a clock around each call, for `in_calls`. What was recorded before is written.
        """
        _ask(self._all, "switch", recording, timed)

    def stop(self) -> None:
        """Record no more; all files are closed."""
        _ask(self._all, "stop")

    def run(self) -> Times:
        """One rollout and the sync after it: from the first rank's start to the last one's end."""
        began_engines = _ask(self._engines, "read")
        began = _ask(self._actors, "go")
        ended = [line.recv() for line in self._actors]
        for _ in self._actors:  # else their pipes fill up
            next(self._reports)
        ended_engines = _ask(self._engines, "read")
        wall_ns = max(stamp.mono_ns for stamp in ended) - min(stamp.mono_ns for stamp in began)
        spent = zip([*began, *began_engines], [*ended, *ended_engines], strict=True)
        return Times(wall_ns / 1e9, sum(e.cpu_ns - b.cpu_ns for b, e in spent) / 1e9)

    def in_calls(self) -> float:
        """CPU seconds in all processes' calls, in or out of a phase, since the last time."""
        taken_ns: list[int] = _ask(self._all, "clocked")
        return sum(taken_ns) / 1e9

    def export(self) -> Times:
        """End and write a window whose last rollout is over; what that took the rank that has it."""
        times: list[Times] = _ask(self._actors, "export")
        return max(times)

    def writers_cpu(self) -> float:
        """CPU seconds that the threads which write have taken so far; all that waits is written first."""
        taken_ns: list[int] = _ask(self._all, "writer")
        return sum(taken_ns) / 1e9


def _ask(lines: Sequence[Connection], order: str, *arguments: object) -> list[Any]:
    for line in lines:
        line.send((order, *arguments))
    return [line.recv() for line in lines]


def _join(address: str, role: str, rank: int) -> None:
    """In each process, before its loop."""
    line = Client(address)
    line.send((role, rank))
    orders = _Orders(line, role, rank)
    if role == "engine":
        threading.Thread(target=orders.obey, daemon=True).start()
        return
    train = Trainer.train

    def waiting_train(self: Trainer, rollout: int, fetch: Callable[[], Any]) -> Any:
        line.send(_read())
        orders.obey()
        return train(self, rollout, fetch)

    Trainer.train = waiting_train  # type: ignore[method-assign]


class _Orders:
    """What the benchmark may ask of a process between rollouts."""

    def __init__(self, line: Connection, role: str, rank: int) -> None:
        self._line = line
        self._identity: dict[str, Any] = {"role": role, "rank": rank}
        if role == "engine":
            self._identity["engine"] = {"index": rank}
        self._off = _calls(Timeline())
        self._on: dict[str, Any] = {}
        self._clock = _Clock()

    def obey(self) -> None:
        """Answer until it is to go on; the end of the benchmark ends the process."""
        while True:
            try:
                order, *arguments = self._line.recv()
            except EOFError:
                os._exit(0)
            if order == "go":
                self._line.send(_read())
                return
            self._line.send(getattr(self, f"_{order}")(*arguments))

    def _start(self, config: Config) -> bool:
        started = timeline.start(config, **self._identity)
        self._on = _calls(timeline)
        return started

    def _switch(self, recording: bool, timed: bool) -> None:
        self._on["flush"]()
        calls = self._on if recording else self._off
        if timed:
            calls = {**calls, **self._clock.around(calls["phase"], calls["begin"])}
        for name, call in calls.items():
            setattr(timeline, name, call)

    def _clocked(self) -> int:
        taken_ns, self._clock.taken_ns = self._clock.taken_ns, 0
        return taken_ns

    def _stop(self) -> None:
        timeline.stop()

    def _read(self) -> _Stamp:
        return _read()

    def _export(self) -> Times:
        before = _read()
        timeline.export_window()
        after = _read()
        return Times((after.mono_ns - before.mono_ns) / 1e9, (after.cpu_ns - before.cpu_ns) / 1e9)

    def _writer(self) -> int:
        timeline.flush()
        return writer_cpu_ns()


def _read() -> _Stamp:
    return _Stamp(time.monotonic_ns(), time.process_time_ns())


def _calls(of: Timeline) -> dict[str, Any]:
    """The calls that are replaced when recording is switched."""
    return {name: getattr(of, name) for name in Timeline.__slots__ if not name.startswith("_")}


class _Clock:
    """Counts the CPU that a thread spends in the calls, where they stand, so with cold caches."""

    def __init__(self) -> None:
        self.taken_ns = 0

    def around(self, phase: Callable[..., Any], begin: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
        """Calls in the place of these."""
        return {
            "phase": lambda name, /, **fields: _TimedPhase(self, phase, name, fields),
            "begin": lambda name, /, **fields: _TimedSpan(self, begin, name, fields),
        }


class _TimedPhase:
    __slots__ = ("_clock", "_fields", "_inner", "_name", "_phase")

    def __init__(self, clock: _Clock, phase: Callable[..., Any], name: str, fields: dict[str, Any]) -> None:
        self._clock, self._phase, self._name, self._fields = clock, phase, name, fields

    def __enter__(self) -> None:
        before = time.thread_time_ns()
        self._inner = inner = self._phase(self._name, **self._fields)
        inner.__enter__()
        self._clock.taken_ns += time.thread_time_ns() - before

    def __exit__(self, *error: object) -> None:
        before = time.thread_time_ns()
        self._inner.__exit__(*error)
        self._clock.taken_ns += time.thread_time_ns() - before


class _TimedSpan:
    __slots__ = ("_clock", "_inner")

    def __init__(self, clock: _Clock, begin: Callable[..., Any], name: str, fields: dict[str, Any]) -> None:
        self._clock = clock
        before = time.thread_time_ns()
        self._inner = begin(name, **fields)
        clock.taken_ns += time.thread_time_ns() - before

    def end(self, **fields: Any) -> None:
        before = time.thread_time_ns()
        self._inner.end(**fields)
        self._clock.taken_ns += time.thread_time_ns() - before
