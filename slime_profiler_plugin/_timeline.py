"""The public switch, in its off state.

`timeline` is the one object users touch. While off, its recording calls are plain
functions that return one shared no-op; nothing is opened, started or imported. `start()`
imports `record` and puts the recording calls in their place, `stop()` puts these back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from .config import Config

P = ParamSpec("P")
R = TypeVar("R")


class Span(Protocol):
    """What `timeline.begin` returns."""

    def end(self, **fields: Any) -> None:
        """Close the span; the fields are added. A second call does nothing."""


class PhaseContext(Protocol):
    """What `timeline.phase` returns; the value of ``as`` is not part of the interface."""

    def __enter__(self) -> object: ...
    def __exit__(self, *exc: object) -> object: ...


class _Noop:
    """Context manager and span that do nothing, at C speed.

    ``"".format`` takes any arguments and returns ``''``, which is false, so an exception
    that passes through ``__exit__`` is never swallowed.
    """

    __slots__ = ()
    __enter__ = "".format
    __exit__ = "".format
    end = "".format


NOOP: Final[Any] = _Noop()


def _off_phase(name: str, /, **fields: Any) -> PhaseContext:
    return NOOP  # type: ignore[no-any-return]


def _off_begin(name: str, /, **fields: Any) -> Span:
    return NOOP  # type: ignore[no-any-return]


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
        The same for spans that do not nest in a ``with``; may end on another thread.
    ``mark(name, **fields)``
        A point in time.
    ``rollout(r)``
        Context manager: records inside, in this thread or task, belong to rollout `r`.
    ``set_rollout(r)``
        From now on the process's records belong to rollout `r`, where no ``rollout(r)``
        says otherwise. Also one step of the profiler schedule, when `r` is new.
    ``set_identity(role=…, rank=…, ranks=…, world_size=…, engine=…)``
        What became known after `start`.
    ``source()``
        This process as the sender of a weight sync, ``None`` while off. Hand it to the
        receiver, whose records then name it: it tells incarnations apart.
    ``export_window()``
        The point of the loop where this rank would wait anyway: a profiler window that has
        ended is written here.
    ``flush()``
        Write what is queued now.
    """

    __slots__ = (
        "_recorder",
        "begin",
        "export_window",
        "flush",
        "mark",
        "phase",
        "rollout",
        "set_identity",
        "set_rollout",
        "source",
    )

    phase: Callable[..., PhaseContext]
    begin: Callable[..., Span]
    mark: Callable[..., None]
    rollout: Callable[[int | str], PhaseContext]
    set_rollout: Callable[[int | str | None], None]
    set_identity: Callable[..., None]
    source: Callable[[], str | None]
    export_window: Callable[[], None]
    flush: Callable[[], None]
    _recorder: Any

    def __init__(self) -> None:
        self._switch_off()

    def _switch_off(self) -> None:
        self._recorder = None
        self.phase = _off_phase
        self.begin = _off_begin
        self.mark = _off_mark
        self.rollout = _off_rollout
        self.set_rollout = _off_set_rollout
        self.set_identity = _off_set_identity
        self.source = _off_source
        self.export_window = _off_step
        self.flush = _off_flush

    @property
    def on(self) -> bool:
        """Whether this process is recording."""
        return self._recorder is not None

    def traced(self, name: str, **fields: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorator: each call is a phase. Decided at the call, so import before `start` works.

        Coroutine functions are awaited inside the phase.
        """
        raise NotImplementedError

    def start(self, config: str | Path | dict[str, Any] | Config | None = None, **identity: Any) -> bool:
        """Begin recording, when the configuration or the environment switches it on.

        `config`: a shipped name, a path, settings, or ``None`` for what the environment
        says. ``SLIME_PROFILER=off`` beats every other switch. `identity`: ``run_id role
        rank ranks world_size engine``. Returns whether it records. Never raises because of
        the profiler's own failure: it warns once and stays off.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """Flush, close the file, and go back to the off state. Harmless when off."""
        raise NotImplementedError


timeline: Final = Timeline()

__all__ = ["NOOP", "PhaseContext", "Span", "Timeline", "timeline"]
_ = functools  # used by the decorator
