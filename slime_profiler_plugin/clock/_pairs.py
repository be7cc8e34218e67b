"""Reading the monotonic and the realtime clock as one."""

from __future__ import annotations

import time
from typing import NamedTuple


class ClockPair(NamedTuple):
    """`unix_ns` was read within `error_ns` of the moment `mono_ns`."""

    mono_ns: int
    unix_ns: int
    error_ns: int


def read_pair(tries: int = 5) -> ClockPair:
    """The tightest of `tries` bracketed reads.

    The realtime clock is read between two monotonic reads a and b; its value belongs to
    their middle, and is wrong by at most half their distance (b - a + 1) // 2.
    """
    best: ClockPair | None = None
    for _ in range(tries):
        before = time.monotonic_ns()
        unix = time.time_ns()
        after = time.monotonic_ns()
        error = (after - before + 1) // 2
        if best is None or error < best.error_ns:
            best = ClockPair((before + after) // 2, unix, error)
    assert best is not None, "tries must be at least 1"
    return best
