"""The slices of a trace on their tracks: which must change lanes, and which one lies under a flow event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from ._kinds import Ints
from ._lanes import assign_lanes
from ._parents import find_parents

#: More lanes than this are looked for with a tree instead of one after the other.
_FEW_LANES: Final = 16
#: So many slices are Python's numbers at a time: those take five times the memory of a column.
_AT_FIRST: Final = 16
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
    """Only what follows a slice that crosses is laid out one by one, up to where all is in order again."""
    lanes = np.zeros(len(starts), np.int64)
    if bool((ends[:-1] <= starts[1:]).all()):  # one after the other
        return lanes
    parents = find_parents(starts, ends)
    if parents is None:
        return _lay_all(starts, ends)
    place = 0
    for first in np.flatnonzero((parents >= 0) & (ends > ends[parents])).tolist():
        if first >= place:
            found = _lay_from(first, starts, ends, _open_ends(first, starts, ends, parents), lanes)
            if found is None:
                return _lay_all(starts, ends)
            place = found
    return lanes


def _lay_all(starts: Ints, ends: Ints) -> Ints:
    return np.array(assign_lanes(list(zip(starts.tolist(), ends.tolist(), strict=True))), dtype=np.int64)


def _open_ends(at: int, starts: Ints, ends: Ints, parents: Ints) -> list[int]:
    """The ends of the slices that are open when slice `at` starts, the outermost first."""
    found = []
    start, place = starts[at], int(parents[at])
    while place >= 0:
        if ends[place] > start:
            found.append(int(ends[place]))
        place = int(parents[place])
    return found[::-1]


def _lay_from(first: int, starts: Ints, ends: Ints, on_first_lane: list[int], lanes: Ints) -> int | None:
    """Set lanes from slice `first` on, until nothing is open on any but the first; gives where that is.

    ``None`` where many lanes are needed.
    """
    stacks = [on_first_lane]
    beside = int(starts[first]) + 1  # when all on other lanes has ended; `first` itself is laid in any case
    at, size = first, _AT_FIRST
    while at < len(starts):
        listed = zip(starts[at : at + size].tolist(), ends[at : at + size].tolist(), strict=True)
        for index, (start, end) in enumerate(listed, at):
            if beside <= start:
                return index
            for lane, stack in enumerate(stacks):  # noqa: B007 - the lane is used behind the loop
                while stack and stack[-1] <= start:
                    stack.pop()
                if not stack or end <= stack[-1]:
                    stack.append(end)
                    break
            else:
                if len(stacks) == _FEW_LANES:
                    return None
                lane = len(stacks)
                stacks.append([end])
            if lane:
                lanes[index] = lane
                beside = max(beside, end)
        at, size = at + size, min(2 * size, _AT_ONCE)
    return len(starts)


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
