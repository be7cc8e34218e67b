"""Where failures of what is attached end: one warning and one count each, in the record file too.

The recorder is imported when there is a failure: a process that only waits for a framework does without.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Final

from slime_profiler_plugin._timeline import timeline

if TYPE_CHECKING:
    from slime_profiler_plugin.record._guard import Guard

_log: Final = logging.getLogger("slime_profiler_plugin")

#: As for the recorder: what may be a failure of ours; `is_theirs` tells.
FAILURE: Final = Exception


def is_theirs(error: BaseException) -> bool:
    """Whether `error` is the program's own, so that it has to go on."""
    try:
        from slime_profiler_plugin.record import _guard
    except FAILURE:  # half an installation: what failed there is ours, and must not follow what failed here
        return not isinstance(error, FAILURE)
    return _guard.is_theirs(error)


def failed(part: str, error: BaseException) -> None:
    """`part` of what is attached raised; the program goes on as if it were not there."""
    recorder = timeline._recorder
    try:
        guard = _idle() if recorder is None else recorder._guard
    except FAILURE as broken:
        if is_theirs(broken):
            raise
        _tell_without_recorder(f"{type(broken).__name__}: {broken}")
        return
    guard.failed(f"attach: {part}", error)


@functools.cache
def _tell_without_recorder(reason: str) -> None:
    """One warning of each reason; a logging handler that raises is not our caller's problem."""
    try:
        _log.warning("slime_profiler_plugin: nothing can be recorded here: %s", reason)
    except FAILURE:
        return  # there is nobody left to tell


@functools.cache
def _idle() -> Guard:
    """Of this process while nothing records: it warns once, and what it counts is never written."""
    from slime_profiler_plugin.record._drops import Drops
    from slime_profiler_plugin.record._guard import Guard

    return Guard(Drops())
