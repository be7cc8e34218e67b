"""Where failures of what is attached end: one warning and one count each, in the record file too."""

from __future__ import annotations

from typing import Final

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.record._drops import Drops
from slime_profiler_plugin.record._guard import FAILURE, Guard, is_theirs

__all__ = ["FAILURE", "failed", "is_theirs"]

#: Of this process while nothing records: it warns once, and what it counts is never written.
_idle: Final = Guard(Drops())


def failed(part: str, error: BaseException) -> None:
    """`part` of what is attached raised; the program goes on as if it were not there."""
    recorder = timeline._recorder
    (_idle if recorder is None else recorder._guard).failed(f"attach: {part}", error)
