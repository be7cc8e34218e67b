"""The public switch, in its off state.

`timeline` is the one object users touch. While off, its recording calls are plain
functions that return one shared no-op; nothing is opened, started or imported. `start()`
imports `record` and puts the recording calls in their place, `stop()` puts these back.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

from ._traced import trace

if TYPE_CHECKING:
    from .config import ConfigSource
    from .record import Recorder

P = ParamSpec("P")
R = TypeVar("R")


#: The process that first used this package; a forked child is another one.
IMPORTED_IN: Final = os.getpid()


class Span(Protocol):
    """What `timeline.begin` returns."""

    def end(self, **fields: Any) -> None:
        """Close the span; the fields are added. A second call does nothing."""

    def cancel(self) -> None:
        """Record nothing of the span: it was not what it was taken for. Nothing after `end`."""

    def set_rollout(self, rollout_id: int | str, /) -> None:
        """The span belongs to that rollout, whichever it was when it began. Nothing after `end`."""

    def inside(self) -> PhaseContext:
        """Context manager: what this thread or task records within has the span as parent."""


class PhaseContext(Protocol):
    """What `timeline.phase` returns; the value of ``as`` is not part of the interface."""

    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...


class _Noop:
    """Context manager that does nothing, at C speed.

    ``"".format`` takes any arguments and returns ``''``, which is false, so an exception
    that passes through ``__exit__`` is never swallowed.
    """

    __slots__ = ()
    __enter__ = "".format
    __exit__ = "".format

    def __reduce__(self) -> str:
        return "NOOP"


NOOP: Final[Any] = _Noop()


class _NoopSpan:
    """Span that does nothing, and refuses what one that records refuses."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "_NOOP_SPAN"

    def end(self, **_fields: Any) -> None:
        return None

    def cancel(self) -> None:
        return None

    def set_rollout(self, _rollout_id: int | str, /) -> None:
        return None

    def inside(self) -> PhaseContext:
        return NOOP  # type: ignore[no-any-return]


_NOOP_SPAN: Final = _NoopSpan()


def _off_phase(name: str, /, **fields: Any) -> PhaseContext:
    return NOOP  # type: ignore[no-any-return]


def noop_phase() -> PhaseContext:
    """What a phase that is copied or sent becomes: it is of one process, and one place in it."""
    return NOOP  # type: ignore[no-any-return]


def noop_span() -> Span:
    """The same for a span."""
    return _NOOP_SPAN


def _off_begin(name: str, /, **fields: Any) -> Span:
    return _NOOP_SPAN


def _off_mark(name: str, /, **fields: Any) -> None:
    return None


def _off_rollout(rollout_id: int | str, /) -> PhaseContext:
    return NOOP  # type: ignore[no-any-return]


def _off_set_rollout(rollout_id: int | str | None, /) -> None:
    return None


def _off_set_identity(**identity: Any) -> None:
    return None


def _off_source() -> str | None:
    return None


def _off_step() -> None:
    return None


def _off_flush() -> None:
    return None


class Timeline:
    """Records phases of this process. Off until `start`.

    ``phase(name, **fields)``
        Context manager around a phase. Fields with a column of their own: ``step bytes
        tensors bucket transport engine sync source weight_version``; any other field goes
        to ``attrs``. An exception closes the phase, is noted as ``error`` and goes on.
    ``begin(name, **fields)`` … ``span.end(**more)``
        The same for spans that do not nest in a ``with``; may end on another thread. What is
        recorded meanwhile has the span as parent only within ``with span.inside()``.
        ``span.cancel()`` in place of `end` records nothing; ``span.set_rollout(r)`` says what it
        belongs to when that is known only then.
    ``mark(name, **fields)``
        A point in time.
    ``rollout(r)``
        Context manager: records inside, in this thread or task, belong to rollout `r`.
    ``set_rollout(r)``
        From now on the process's records belong to rollout `r`, where no ``rollout(r)``
        says otherwise. Also one step of the profiler schedule, when `r` is new.
    ``set_identity(role=…, rank=…, ranks=…, world_size=…, engine=…)``
        What became known after `start`; what is not given stays.
    ``source()``
        This process as the sender of a weight sync, ``None`` while off. Hand it to the
        receiver, whose records then name it: it tells incarnations apart.
    ``watch_sync()``
        Context manager around one weight sync of all, in the process that waits for it, and in no
        other. Where the configuration has a `trigger`, one that takes unusually long makes the chosen
        ranks record a profiler window some rollouts later.
    ``export_window()``
        The point of the loop where this rank would wait anyway: a profiler window whose last
        rollout this is ends here and is written. What follows is not in it.
    ``flush()``
        Returns when what is queued now is written, after 10 s at most.
    """

    __slots__ = (
        "_recorder",
        "_starting",
        "begin",
        "export_window",
        "flush",
        "mark",
        "phase",
        "rollout",
        "set_identity",
        "set_rollout",
        "source",
        "watch_sync",
    )

    phase: Callable[..., PhaseContext]
    begin: Callable[..., Span]
    mark: Callable[..., None]
    rollout: Callable[[int | str], PhaseContext]
    set_rollout: Callable[[int | str | None], None]
    set_identity: Callable[..., None]
    source: Callable[[], str | None]
    watch_sync: Callable[[], PhaseContext]
    export_window: Callable[[], None]
    flush: Callable[[], None]
    _recorder: Recorder | None
    _starting: threading.RLock

    def __init__(self) -> None:
        self._renew_lock()
        self._switch_off()

    def _renew_lock(self) -> None:
        """Also in a forked child, where the one who held it does not exist.

        Re-entrant: a signal handler may start too.
        """
        self._starting = threading.RLock()

    def _switch_off(self) -> None:
        self._recorder = None
        self.phase = _off_phase
        self.begin = _off_begin
        self.mark = _off_mark
        self.rollout = _off_rollout
        self.set_rollout = _off_set_rollout
        self.set_identity = _off_set_identity
        self.source = _off_source
        self.watch_sync = noop_phase
        self.export_window = _off_step
        self.flush = _off_flush

    def _switch_on(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.phase = recorder.phase
        self.begin = recorder.begin
        self.mark = recorder.mark
        self.rollout = recorder.rollout
        self.set_rollout = recorder.set_rollout
        self.set_identity = recorder.set_identity
        self.source = recorder.source
        self.watch_sync = recorder.watch_sync
        self.export_window = recorder.export_window
        self.flush = recorder.flush

    def __reduce__(self) -> str:
        """By name: Ray sends a script's functions with what they refer to; there it is that process's own."""
        return "timeline"

    @property
    def on(self) -> bool:
        """Whether this process is recording."""
        return self._recorder is not None

    def traced(self, name: str, **fields: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorator: each call is a phase. Decided at the call, so import before `start` works.

        Coroutine functions are awaited inside the phase. A generator's phase lasts from its
        first step to its end; only while its body runs is it the parent of what is recorded.
        """
        return lambda function: trace(self, name, fields, function)

    def start(self, config: ConfigSource = None, **identity: Any) -> bool:
        """Begin recording, when the configuration or the environment switches it on.

        `config`: a shipped name, a path, settings, or ``None`` for what the environment
        says. ``SLIME_PROFILER=off`` beats every other switch. `identity`: ``run_id role
        rank ranks world_size engine``; `ranks` and `engine` are dicts of integers such as
        ``{"tp": 0}`` and ``{"index": 0}``. Returns whether it records. Never raises because of
        the profiler's own failure: it warns once and stays off. While on, it only notes
        what it is told about the process's identity; another configuration is not used, and
        warned of. Threads may call it at the same time: one of them begins.
        """
        with self._starting:
            recorder = self._recorder
            if recorder is None:
                return self._start(config, identity)
        recorder.start_again(config, os.environ)
        identity.pop("run_id", None)  # the run is what it is
        if identity:
            recorder.set_identity(**identity)
        return True

    def _start(self, config: ConfigSource, identity: dict[str, Any]) -> bool:
        with _Starting():
            from .config import load_config

            settings = load_config(config, os.environ)
            if settings is None:
                return False
            from .record import open_recorder

            self._switch_on(open_recorder(settings, os.environ, identity, self._switch_off, config))
        return self.on

    def stop(self) -> None:
        """Flush, close the file, and go back to the off state. Harmless when off."""
        self._stop("stop")

    def _stop(self, reason: str) -> None:
        recorder = self._recorder
        if recorder is not None:
            self._switch_off()
            recorder.close(reason)


class _Starting:
    """Whatever goes wrong while starting is one warning, and recording stays off."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        with contextlib.suppress(Exception):  # a logging handler that raises
            logging.getLogger("slime_profiler_plugin").warning("slime_profiler_plugin stays off: %s", error)
        return True


timeline: Final = Timeline()

# Not per start: a process may start and stop as often as it likes.
atexit.register(timeline._stop, "exit")
os.register_at_fork(after_in_child=timeline._renew_lock)

__all__ = ["NOOP", "PhaseContext", "Span", "Timeline", "timeline"]
