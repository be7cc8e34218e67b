"""The one place where the recorder's failures end, so that none becomes the program's.

A part of the recorder (``nvtx``, ``device_events``, ``windows``, …) that raises is
disabled: one warning names it, the record file counts it, the program goes on. A value of
the program's that cannot be is ignored, and disables nothing.
"""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Final, ParamSpec, TypeVar

from ._drops import Drops

P = ParamSpec("P")
R = TypeVar("R")

_log: Final = logging.getLogger("slime_profiler_plugin")

#: What counts as a failure of ours. Never the program's own ending: KeyboardInterrupt,
#: SystemExit and asyncio's cancellation pass. The hot path names this in ``except`` clauses
#: of its own, which cost nothing until something is raised; a guarded call costs more than
#: the clock read it would protect.
FAILURE: Final = Exception
#: A failure of ours, or what the program raised while our code ran: `is_theirs` tells them
#: apart. For ``except`` clauses that restore a state before the program's goes on.
RAISED: Final = BaseException
#: Refused values that are told one by one. A program may have a new one in each turn of its loop.
_MOST_REFUSALS: Final = 20
#: Parts that are not used again after a failure; the others go on with the next call.
_ENDING: Final = frozenset({"device_events", "nvtx", "record_function", "windows", "writer"})
#: Of a description, in characters.
_LONGEST: Final = 500
#: Of an exception whose text is made.
_MOST_ARGUMENTS: Final = 5
_BUILT_IN: Final = type(BaseException.__str__)
#: Not what a class of the program's may have put in its place.
_arguments_of: Final = vars(BaseException)["args"].__get__


class Guard:
    """Turns failures of the recorder's parts into one warning and one counted drop each."""

    def __init__(self, drops: Drops) -> None:
        self._drops = drops
        self._failed: dict[str, object] = {}
        self._refused: set[tuple[str, str]] = set()

    def call(self, part: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        """`function`'s result; ``None`` when it raises, or when `part` was disabled before."""
        if part in self._failed:
            return None
        with self(part):
            return function(*args, **kwargs)
        return None

    def __call__(self, part: str) -> _Guarded:
        """Context manager: an exception inside disables `part` and goes no further."""
        return _Guarded(self.failed, part)

    def refusing(self, part: str) -> _Guarded:
        """Context manager around a check of what the program says of `part`: it may raise, each time."""
        return _Guarded(self.refused, part)

    def disabled(self, part: str) -> bool:
        """Whether `part` has failed."""
        return part in self._failed

    def failed(self, part: str, error: BaseException | str) -> None:
        """Warn and count, once; `disabled` says so from now on."""
        first = object()
        if self._failed.setdefault(part, first) is not first:
            return
        reason = error if isinstance(error, str) else describe(error)
        self._drops.add(part, reason)
        warn(f"{part} is off from now on: {reason}" if part in _ENDING else f"{part} failed: {reason}")

    def lost(self, what: str, reason: str, name: object) -> None:
        """One phase or mark is not recorded; its part goes on."""
        self._drops.add(what, reason, 1, {name: 1} if isinstance(name, str) else None)

    def refused(self, part: str, error: BaseException) -> None:
        """What the program said of `part` is ignored: count, and warn once of the same value."""
        reason = describe(error)
        known = (part, reason) in self._refused
        if not known and len(self._refused) >= _MOST_REFUSALS:
            self._drops.add(part, "another value that was ignored")
            return
        self._refused.add((part, reason))
        self._drops.add(part, reason)
        if not known:
            warn(f"a value for the {part} is ignored: {reason}")


class _Guarded:
    __slots__ = ("_caught", "_part")

    def __init__(self, caught: Callable[[str, BaseException], None], part: str) -> None:
        self._caught = caught
        self._part = part

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or is_theirs(error):
            return False
        self._caught(self._part, error)
        return True


def warn(message: str) -> None:
    """One warning of the plugin's logger; a logging handler that raises is not our caller's problem."""
    try:
        _log.warning("slime_profiler_plugin: %s", message)
    except FAILURE as error:
        if is_theirs(error):
            raise
        return  # a user's logging handler raised, and there is nobody left to tell


def is_theirs(error: BaseException) -> bool:
    """Whether `error` is the program's own, so that it has to go on: no `FAILURE` at all, or
    raised by a signal handler of the program that ran in the middle of our code, as timeouts are.
    """
    if not isinstance(error, FAILURE):
        return True
    interrupted: FrameType | None = None
    trace = error.__traceback__
    while trace is not None:
        if interrupted is not None and _handles_signal(trace.tb_frame, interrupted):
            return True
        interrupted = trace.tb_frame
        trace = trace.tb_next
    return False


def _handles_signal(frame: FrameType, interrupted: FrameType) -> bool:
    """Whether `frame` was called as signal handlers are: with a number and the frame it interrupts.

    Told by its arguments, since a handler may have been replaced by the time we ask.
    """
    code, values = frame.f_code, frame.f_locals
    plain = code.co_argcount + code.co_kwonlyargcount
    arguments = [values.get(name) for name in code.co_varnames[:plain]]
    if code.co_flags & inspect.CO_VARARGS:
        arguments += values.get(code.co_varnames[plain], ())
    return any(
        value is interrupted and isinstance(number, int) for number, value in itertools.pairwise(arguments)
    )


def describe(error: BaseException) -> str:
    """``Type: message`` in one line of at most 500 characters; never raises.

    The type alone, when the exception has other arguments than a few plain ones, or a
    ``__str__`` in Python: on the training thread that might print millions of numbers, or wait
    for a device.
    """
    name = type(error).__name__
    arguments: tuple[object, ...] = _arguments_of(error)
    if not arguments or len(arguments) > _MOST_ARGUMENTS or not all(map(_is_short, arguments)):
        return name
    if len(arguments) == 1:
        text = arguments[0][:_LONGEST] if type(arguments[0]) is str else str(arguments[0])
    elif type(type(error).__str__) is _BUILT_IN:
        text = str(error)
    else:
        text = ", ".join(map(str, arguments))
    text = " ".join(text.split())
    return f"{name}: {text}"[:_LONGEST] if text else name


def _is_short(argument: object) -> bool:
    kind = type(argument)
    if kind is str or kind is int:
        return kind is str or -(2**63) <= argument < 2**64  # type: ignore[operator]
    return kind is float or kind is bool or argument is None
