"""Phases whose begin and end are two calls of a framework's, not one ``with`` block.

A framework that starts and stops a timer does not stop it when an exception passes. What was
left open is closed by the next call that knows better: the end of something around it, or the
beginning of the same thing again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from slime_profiler_plugin._timeline import PhaseContext, timeline

from ._failures import FAILURE, failed, is_theirs

T = TypeVar("T")


class LeftOpenError(Exception):
    """Noted as the error of a phase that ended without its framework saying so."""


class _Opened:
    """One phase that has begun on this thread; `context` is absent where the one around it is the same."""

    __slots__ = ("context", "key", "phase")

    def __init__(self, key: str, phase: str, context: PhaseContext | None) -> None:
        self.key = key
        self.phase = phase
        self.context = context


class _Thread(threading.local):
    def __init__(self) -> None:
        self.opened: list[_Opened] = []


class OpenPhases:
    """The calling thread's phases that began and have not ended, the innermost last.

    A phase directly inside one of the same name is not recorded twice: both a wrapped function
    and a timer inside it may stand for it.
    """

    def __init__(self) -> None:
        self._thread: Final = _Thread()

    def begin(self, key: str, phase: str, fields: dict[str, Any]) -> None:
        """Begin `phase`; `end` with the same `key` ends it. Never raises a failure of ours.

        What is still open under the same key was left open.
        """
        try:
            opened = self._thread.opened
            for place, one in enumerate(opened):
                if one.key == key:
                    self._close(place, LeftOpenError("an exception passed"))
                    break
            context = None
            if not opened or opened[-1].phase != phase:
                context = timeline.phase(phase, **fields)
                context.__enter__()
            opened.append(_Opened(key, phase, context))
        except FAILURE as error:
            if is_theirs(error):
                raise
            failed("phase", error)

    def end(self, key: str) -> None:
        """End what began under `key`, and what was left open inside. Unknown keys are ignored."""
        try:
            opened = self._thread.opened
            for place in range(len(opened) - 1, -1, -1):
                if opened[place].key == key:
                    self._close(place + 1, LeftOpenError("an exception passed"))
                    self._close(place, None)
                    return
        except FAILURE as error:
            if is_theirs(error):
                raise
            failed("phase", error)

    def around(self, phase: str, call: Callable[[], T], fields: dict[str, Any]) -> T:
        """The result of `call`, which is `phase`; what it left open is closed with the error that passed."""
        if not timeline.on:
            return call()
        depth = len(self._thread.opened)
        self.begin(f"{phase} around {depth}", phase, fields)
        try:
            result = call()
        except BaseException as error:
            self._leave(depth, error)
            raise
        self._leave(depth, None)
        return result

    def _leave(self, depth: int, error: BaseException | None) -> None:
        try:
            if error is None:
                self._close(depth + 1, LeftOpenError("an exception passed"))
            self._close(depth, error)
        except FAILURE as failure:
            if is_theirs(failure):
                raise
            failed("phase", failure)

    def _close(self, depth: int, error: BaseException | None) -> None:
        """Close all but the outermost `depth`, the innermost first."""
        opened = self._thread.opened
        while len(opened) > depth:
            context = opened.pop().context
            if context is not None:
                context.__exit__(None if error is None else type(error), error, None)


#: The phases of all frameworks: a timer of one may stand in a wrapped function of another.
PHASES: Final = OpenPhases()
