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


_PASSED: Final = "an exception passed"


class LeftOpenError(Exception):
    """Noted as the error of a phase that ended without its framework saying so."""


#: (key, phase, what closes it) of a phase that has begun; nothing closes it where the one around is the same.
Opened = tuple[str, str, "PhaseContext | None"]


class OpenPhases:
    """The calling thread's phases that began and have not ended, the innermost last.

    A phase directly inside one of the same name is not recorded twice: both a wrapped function
    and a timer inside it may stand for it.
    """

    def __init__(self) -> None:
        # Plain: a subclass of `local` with a default costs three times as much to read.
        self._thread: Final = threading.local()

    def opened(self) -> list[Opened]:
        """Of the calling thread, to be changed in place."""
        try:
            return self._thread.opened  # type: ignore[no-any-return]
        except AttributeError:
            self._thread.opened = opened = list[Opened]()
            return opened

    def begin(self, key: str, phase: str, fields: dict[str, Any]) -> None:
        """Begin `phase`; `end` with the same `key` ends it. Never raises a failure of ours.

        What is still open under the same key was left open. While the timeline is off, nothing begins.
        """
        if timeline._recorder is None:
            return
        try:
            opened = self.opened()
            for place, one in enumerate(opened):
                if one[0] == key:
                    _close(opened, place, LeftOpenError(_PASSED))
                    break
            context = None
            if not opened or opened[-1][1] != phase:
                context = timeline.phase(phase, **fields)
                context.__enter__()
            opened.append((key, phase, context))
        except FAILURE as error:
            if is_theirs(error):
                raise
            failed("phase", error)

    def end(self, key: str) -> None:
        """End what began under `key`, and what was left open inside. Unknown keys are ignored."""
        try:
            opened = self.opened()
            for place in range(len(opened) - 1, -1, -1):
                if opened[place][0] == key:
                    if place < len(opened) - 1:
                        _close(opened, place + 1, LeftOpenError(_PASSED))
                    _close(opened, place, None)
                    return
        except FAILURE as error:
            if is_theirs(error):
                raise
            failed("phase", error)

    def around(self, phase: str, call: Callable[[], T], fields: dict[str, Any]) -> T:
        """The result of `call`, which is `phase`; what it left open is closed with the error that passed."""
        if timeline._recorder is None:
            return call()
        depth = len(self.opened())
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
            opened = self.opened()
            if error is None and len(opened) > depth + 1:
                _close(opened, depth + 1, LeftOpenError(_PASSED))
            _close(opened, depth, error)
        except FAILURE as failure:
            if is_theirs(failure):
                raise
            failed("phase", failure)


def _close(opened: list[Opened], depth: int, error: BaseException | None) -> None:
    """Close all but the outermost `depth`, the innermost first."""
    while len(opened) > depth:
        context = opened.pop()[2]
        if context is not None:
            context.__exit__(None if error is None else type(error), error, None)


#: The phases of all frameworks: a timer of one may stand in a wrapped function of another.
PHASES: Final = OpenPhases()
