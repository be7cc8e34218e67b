"""One recording of this process: puts the parts together and takes them down."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from slime_profiler_plugin import schema
from slime_profiler_plugin._timeline import PhaseContext, noop_phase
from slime_profiler_plugin.config import Config, ConfigError, ConfigSource, describe_out, load_config
from slime_profiler_plugin.identity import OutError, Place, ProcessIdentity, change_place, resolve
from slime_profiler_plugin.layout import RunPaths

from ._child_end import ChildEnd
from ._context import RolloutContext, ThreadState
from ._devices import DeviceBrackets, open_brackets
from ._drops import Drops
from ._guard import Guard, warn
from ._hot import HotPath
from ._lines import check_rollout
from ._nvtx import open_nvtx
from ._outputs import Outputs
from ._part import PartContext
from ._process_line import process_line
from ._queue import Record
from ._signals import SigtermFlush
from ._slow_syncs import SlowSyncs
from ._threads import signals_blocked
from ._values import as_text
from ._window_requests import WindowRequests
from ._windows import ProfilerWindows, selects_process
from ._writer import Writer

#: How long a program may wait for the last flush when it ends, in seconds. A hanging file
#: system must not keep a process alive.
CLOSE_TIMEOUT_S: Final = 5.0
#: The same for `flush`.
FLUSH_TIMEOUT_S: Final = 10.0

_ROLES_WITHOUT_ROLLOUT: Final = frozenset({"engine", "engine_client", "router"})

_recording: Final[weakref.WeakSet[Recorder]] = weakref.WeakSet()


class Recorder:
    """What `timeline` calls while it records."""

    def __init__(self, identity: ProcessIdentity, config: Config, off: Callable[[], None]) -> None:
        """`off` puts the public switch back into its off state; called when recording ends by itself."""
        self._off = off
        self._closed = False
        self._rollout_was_set = False
        self._windows: ProfilerWindows | None = None
        self._windows_tried = False
        self._warned_of_start = False
        self._who = identity
        self._by_environment = identity.by_environment
        drops = Drops()
        self._guard = guard = Guard(drops)
        process = process_line(identity, config)
        paths = RunPaths(Path(config.out).absolute(), identity.run_id)  # the program may change its folder
        self._part = PartContext(identity=process, paths=paths, config=config, guard=guard, drops=drops)
        self._writer = Writer(
            queue_capacity=config.records.queue,
            settings=config.records,
            drops=drops,
            guard=guard,
            process=process,
            path_of=lambda segment: paths.record_file(
                identity.host, identity.pid, self._who.start_unix_ns, segment
            ),
            next_incarnation=self._next_incarnation,
            open_phases=self._open_phases,
            failed=self._give_up,
        )
        outputs = config.outputs
        with signals_blocked():
            nvtx = guard.call("nvtx", open_nvtx, os.environ) if outputs.nvtx else None
        self._outputs = Outputs(
            guard,
            nvtx=nvtx,
            record_function_gated=outputs.record_function_gated if outputs.record_function else None,
            make_brackets=self._make_brackets if outputs.device_events and outputs.records else None,
        )
        self._hot = HotPath(self._writer.queue, guard, self._outputs, self._first_record_of)
        self._hot.rollout = self._default_rollout()
        trigger = None if config.profiler is None else config.profiler.trigger
        self._slow_syncs = None
        if trigger is not None:
            self._slow_syncs = SlowSyncs(
                self._part, trigger, self._hot.current_rollout, self._hot.mark, self._writer.run
            )
        self._sigterm = SigtermFlush(self.flush, end=self._terminate, end_outside=self._end_outside)
        self._child_end = ChildEnd(self._end_of_child)
        if outputs.records:
            self._writer.start()
        else:
            self._writer.queue.abandon()
        _recording.add(self)
        self.phase = self._hot.phase
        self.begin = self._hot.begin
        self.mark = self._hot.mark

    def rollout(self, rollout_id: object, /) -> RolloutContext:
        """`Timeline.rollout`."""
        rollout: schema.Rollout = self._hot.current_rollout()
        with self._guard.refusing("rollout"):
            rollout = check_rollout(rollout_id)
        self._hot.has_scopes = True
        return RolloutContext(rollout)

    def set_rollout(self, rollout_id: object, /) -> None:
        """`Timeline.set_rollout`."""
        with self._guard.refusing("rollout"):
            rollout = check_rollout(rollout_id)
            with self._guard("rollout"):
                self._switch_rollout(rollout)

    def set_identity(self, **identity: Any) -> None:
        """`Timeline.set_identity`."""
        with self._guard.refusing("identity"):
            process = self._part.identity
            known = Place(**{key: getattr(process, key) for key in Place.__struct_fields__})
            place, self._by_environment = change_place(known, identity, self._by_environment)
            with self._guard("identity"):
                self._move(place)

    def start_again(self, source: ConfigSource, environ: Mapping[str, str]) -> None:
        """`Timeline.start` with a `source` while this records: warn, once, when it says something else."""
        with self._guard("second start"):
            if source is None or self._warned_of_start:
                return
            try:
                same = load_config(source, environ) == self._part.config
            except ConfigError:
                same = False
            if not same:
                self._warned_of_start = True
                warn(
                    "start() was called again, with another configuration; it is not used, "
                    "and recording goes on as it began. Call stop() first"
                )

    def source(self) -> str:
        """`Timeline.source`."""
        process = self._part.identity
        rank = "x" if process.rank is None else process.rank
        return f"{process.role or 'process'}-{rank}@{process.incarnation}"

    def shared_environ(self) -> dict[str, str]:
        """Environment by which children of this process join its run and attempt."""
        return self._who.shared_environ()

    def ray_file(self) -> Path:
        """Where this process, as the driver, puts Ray's own timeline."""
        process = self._part.identity
        return self._part.paths.ray_file(process.attempt, process.start_unix_ns)

    def export_window(self) -> None:
        """`Timeline.export_window`."""
        if self._windows is not None:
            self._guard.call("windows", self._windows.export)

    def watch_sync(self) -> PhaseContext:
        """`Timeline.watch_sync`."""
        if self._slow_syncs is None:
            return noop_phase()
        return self._slow_syncs.watch()

    def window_requests(self) -> Callable[[int], bool]:
        """Told of each rollout that begins, it says whether the driver asks for a window there."""
        profiler = self._part.config.profiler
        if profiler is None or profiler.trigger is None:
            return _never
        return WindowRequests(self._part, profiler.trigger.windows, self._writer.run).takes

    def flush(self) -> None:
        """`Timeline.flush`."""
        with self._guard("flush"):
            self._writer.flush(FLUSH_TIMEOUT_S)

    def close(self, reason: str) -> None:
        """End the recording: everything is written, the file closed, SIGTERM given back."""
        if self._closed:
            return
        if self._windows is not None:
            self._guard.call("windows", self._windows.close)
        self._end(reason)
        with self._guard("signals"):
            self._sigterm.remove()
        with self._guard("child end"):
            self._child_end.remove()

    def forked(self) -> None:
        """In a forked child, which has the memory but neither the file nor the writer thread."""
        self._closed = True
        self._part.drops.reset()
        self._writer.queue.abandon()
        self._outputs.abandon()
        self._writer.abandon()
        self._sigterm.remove()
        self._off()

    def _terminate(self) -> None:
        """SIGTERM leaves no time to write a window: it is counted as lost."""
        if self._windows is not None:
            self._guard.call("windows", self._windows.abandon, "SIGTERM")
        self._end("SIGTERM")

    def _end_of_child(self) -> None:
        self._off()
        self.close("exit")

    def _end_outside(self) -> None:
        """SIGTERM while the main thread is inside C code, perhaps the device's: leave that alone."""
        if self._windows is not None:
            self._guard.call("windows", self._windows.abandon, "SIGTERM")
        with self._guard("close"):
            self._writer.close("SIGTERM", CLOSE_TIMEOUT_S)

    def _end(self, reason: str) -> None:
        """May interrupt itself, by SIGTERM: each step may be done twice."""
        with self._guard("close"):
            self._closed = True
            _recording.discard(self)
            self._outputs.close()
            self._writer.close(reason, CLOSE_TIMEOUT_S)

    def _make_brackets(self, _torch: object) -> DeviceBrackets | None:
        return open_brackets(self._part, self._writer.queue.put)

    def _switch_rollout(self, rollout: schema.Rollout) -> None:
        if isinstance(rollout, int) and self._windows is None and not self._windows_tried:
            self._open_windows()
        if self._windows is not None:  # before the switch: it may write the last rollout's window
            self._guard.call("windows", self._windows.on_rollout, rollout)
        self._rollout_was_set = True
        self._hot.rollout = rollout
        self._outputs.mark_clock()

    def _move(self, place: Place) -> None:
        fields = msgspec.structs.asdict(place)
        for key, value in fields.items():
            setattr(self._part.identity, key, value)
        self._writer.queue.force(schema.Identity(at_ns=time.monotonic_ns(), **fields))
        if not self._rollout_was_set:
            self._hot.rollout = self._default_rollout()

    def _open_windows(self) -> None:
        """At the first rollout: role and rank are known by then."""
        if not selects_process(self._part.config.profiler, self._part.identity):
            return
        self._windows_tried = True
        self._windows = self._guard.call(
            "windows", ProfilerWindows, self._part, self._hot.phase, self.window_requests()
        )
        if self._windows is not None:
            self._outputs.watch(self._windows)

    def _next_incarnation(self) -> ProcessIdentity:
        """On the writer's thread, before there is a file: the name is another process's."""
        self._who = who = self._who.next_incarnation()
        self._part.identity.incarnation = who.incarnation
        self._part.identity.start_unix_ns = who.start_unix_ns
        return who

    def _give_up(self) -> None:
        self._closed = True
        _recording.discard(self)
        self._off()

    def _first_record_of(self, state: ThreadState) -> None:
        """Called in each thread at its first record."""
        if not self._part.config.outputs.records:
            return
        self._writer.queue.force(schema.Thread(tid=state.tid, name=_thread_name(state.tid)))
        with self._guard("signals"):
            self._sigterm.install()
        with self._guard("child end"):
            self._child_end.install()

    def _open_phases(self) -> Iterator[Record]:
        for phase in self._hot.open_phases():
            yield Record(
                name=phase.name,
                id=phase.id,
                parent=phase.parent,
                rollout=phase.rollout,
                start_ns=phase.start_ns,
                end_ns=phase.start_ns,
                tid=phase.state.tid,
                task=phase.task,
                fields=phase.fields,
                error=None,
            )

    def _default_rollout(self) -> schema.Rollout:
        return None if self._part.identity.role in _ROLES_WITHOUT_ROLLOUT else schema.INITIAL


def open_recorder(
    config: Config,
    environ: Mapping[str, str],
    given: Mapping[str, Any],
    off: Callable[[], None],
    source: ConfigSource = None,
) -> Recorder:
    """Find out who this process is, and record from now on.

    `source`: what `config` was loaded from, as `load_config` takes it, for messages. Raises what
    `identity.resolve` raises, and `RuntimeError` when no thread can be started.
    """
    try:
        identity = resolve(environ, given, config.out, settings=config.public())
    except OutError as error:
        raise OutError(f"{error}; it is set by {describe_out(config, source, environ)}") from error
    recorder = Recorder(identity, config, off)
    if identity.warning is not None:
        warn(identity.warning)
    return recorder


def _never(_rollout: int) -> bool:
    return False


def _thread_name(tid: int) -> str:
    """Python's name of the calling thread, else the kernel's.

    `threading.current_thread` would register a thread that C started as a dummy for good.
    """
    ident = threading.get_ident()
    for thread in threading.enumerate():
        if thread.ident == ident:
            return as_text(thread.name)
    try:
        return Path(f"/proc/self/task/{tid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return str(tid)


def _forked() -> None:
    for recorder in list(_recording):
        recorder.forked()


os.register_at_fork(after_in_child=_forked)
