"""Slices that a trace writes as a begin and an end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._kinds import BEGIN, END, Ints, Kinds


class Begins(NamedTuple):
    """Events by number: `begins` with their `lengths` (ns) and the end that closed each (`closers`, -1: none
    did); `stray` are ends without a begin.
    """

    begins: Ints
    lengths: Ints
    closers: Ints
    stray: Ints


def match_ends(events: Ints, tracks: Ints, times: Ints, kinds: Kinds, last_ns: int) -> Begins:
    """Each end closes the begin that is open on its track and came last, as viewers do.

    Events with one time follow as in the file. What nothing closes lasts until `last_ns`.

    >>> kinds = np.array([BEGIN, BEGIN, END, END, END, BEGIN], np.uint8)
    >>> found = match_ends(np.arange(6), np.zeros(6, int), np.array([1, 2, 3, 5, 6, 7]), kinds, 9)
    >>> found.begins.tolist(), found.lengths.tolist(), found.stray.tolist()
    ([0, 1, 5], [4, 1, 2], [4])
    """
    order = np.lexsort((events, times, tracks))
    lengths: dict[int, tuple[int, int]] = {}
    stray: list[int] = []
    waiting: list[tuple[int, int]] = []
    known: int | None = None
    listed = zip(
        events[order].tolist(),
        tracks[order].tolist(),
        times[order].tolist(),
        kinds[order].tolist(),
        strict=True,
    )
    for event, track, at, kind in listed:
        if track != known:
            known, waiting = track, []
        if kind == BEGIN:
            waiting.append((event, at))
            lengths[event] = (max(last_ns - at, 0), -1)
        elif kind == END and waiting:
            begin, since = waiting.pop()
            lengths[begin] = (at - since, event)
        else:
            stray.append(event)
    begins = sorted(lengths)
    return Begins(
        np.array(begins, dtype=np.int64),
        np.array([lengths[event][0] for event in begins], dtype=np.int64),
        np.array([lengths[event][1] for event in begins], dtype=np.int64),
        np.array(stray, dtype=np.int64),
    )
