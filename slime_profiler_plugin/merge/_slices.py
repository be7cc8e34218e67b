"""The slices of a trace on their tracks: which must change lanes, and which one lies under a flow event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from ._kinds import Ints
from ._lanes import assign_lanes

#: More lanes than this are looked for with a tree instead of one after the other.
_FEW_LANES: Final = 16
#: So many slices are Python's numbers at a time: those take five times the memory of a column.
_AT_ONCE: Final = 1 << 16
#: Fewer are sorted by counting.
_FEW_TRACKS: Final = 2**16
#: Slices between two marks of the latest end so far.
_STRIDE: Final = 512


class TrackSlices(NamedTuple):
    """The slices of one track by start, the longer first: their events, starts and ends (ns), lanes."""

    track: int
    events: Ints
    starts: Ints
    ends: Ints
    lanes: Ints


def lay_out_tracks(events: Ints, tracks: Ints, starts: Ints, ends: Ints) -> Iterator[TrackSlices]:
    """Each track with the lanes of its slices, such that no two on one lane cross.

    A slice goes to the first lane where it fits; one that ends when another begins does not cross it.

    >>> one = np.zeros(3, np.int64)
    >>> laid = next(lay_out_tracks(np.array([7, 8, 9]), one, np.array([3, 5, 6]), np.array([6, 8, 7])))
    >>> laid.events.tolist(), laid.lanes.tolist()
    ([7, 8, 9], [0, 1, 0])
    """
    if not len(events):
        return
    order = _nesting_order(tracks, starts, ends)
    bounds = np.flatnonzero(np.diff(tracks[order])) + 1
    for group in np.split(order, bounds):
        own_starts, own_ends = starts[group], ends[group]
        lanes = _find_lanes(own_starts, own_ends)
        yield TrackSlices(int(tracks[group[0]]), events[group], own_starts, own_ends, lanes)


def _nesting_order(tracks: Ints, starts: Ints, ends: Ints) -> Ints:
    """Slices by track and start, the longer first; quick where starts differ and come nearly in order."""
    if int(tracks.max()) < _FEW_TRACKS:
        by_start = np.argsort(starts, kind="stable")
        order = by_start[np.argsort(tracks[by_start].astype(np.uint16), kind="stable")]
        same = (starts[order][1:] == starts[order][:-1]) & (tracks[order][1:] == tracks[order][:-1])
        if not same.any():
            return order
    return np.lexsort((-ends, starts, tracks))


def _find_lanes(starts: Ints, ends: Ints) -> Ints:
    if bool((ends[:-1] <= starts[1:]).all()):  # one after the other
        return np.zeros(len(starts), np.int64)
    lanes = np.zeros(len(starts), np.int64)
    stacks: list[list[int]] = [[]]
    for first in range(0, len(starts), _AT_ONCE):
        listed = zip(
            starts[first : first + _AT_ONCE].tolist(), ends[first : first + _AT_ONCE].tolist(), strict=True
        )
        for index, (start, end) in enumerate(listed, first):
            for lane, stack in enumerate(stacks):
                while stack and stack[-1] <= start:
                    stack.pop()
                if not stack or end <= stack[-1]:
                    stack.append(end)
                    if lane:
                        lanes[index] = lane
                    break
            else:
                if len(stacks) == _FEW_LANES:
                    whole = list(zip(starts.tolist(), ends.tolist(), strict=True))
                    return np.array(assign_lanes(whole), dtype=np.int64)
                lanes[index] = len(stacks)
                stacks.append([end])
    return lanes


def find_innermost(slices: TrackSlices, times: Ints) -> Ints:
    """For each time the place in `slices` of the slice that began last of those that are open then, or -1.

    A slice is open from its start up to, but not at, its end; one of length 0 at its start.
    """
    places = np.searchsorted(slices.starts, times, side="right") - 1
    found = np.where(places >= 0, places, 0)
    is_open = (slices.ends[found] > times) | (slices.starts[found] == times)
    unsure = np.flatnonzero((places >= 0) & ~is_open)
    places = np.where(is_open | (places < 0), places, -1)
    if len(unsure):
        latest = np.maximum.reduceat(slices.ends, np.arange(0, len(slices.ends), _STRIDE))
        for index in unsure.tolist():
            places[index] = _last_open(slices.ends, latest, int(found[index]), int(times[index]))
    return places


def find_next(slices: TrackSlices, times: Ints) -> Ints:
    """For each time the place in `slices` of the first slice that begins after it, or -1."""
    places = np.searchsorted(slices.starts, times, side="right")
    return np.where(places < len(slices.starts), places, -1)


def _last_open(ends: Ints, latest: Ints, last: int, at: int) -> int:
    """The last place up to `last` whose slice ends after `at`; `latest` are the largest ends by stride."""
    stride = last // _STRIDE
    inside = np.flatnonzero(ends[stride * _STRIDE : last + 1] > at)
    if len(inside):
        return stride * _STRIDE + int(inside[-1])
    before = np.flatnonzero(latest[:stride] > at)
    if not len(before):
        return -1
    first = int(before[-1]) * _STRIDE
    return first + int(np.flatnonzero(ends[first : first + _STRIDE] > at)[-1])
