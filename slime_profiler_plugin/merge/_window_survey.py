"""What the first reading of a window keeps: a few numbers per event, in flat arrays."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Hashable, Iterator
from typing import Final

import numpy as np
from msgspec import UNSET

from slime_profiler_plugin.read import TraceEvent

from ._flows import IdSource, pair_flows
from ._lanes import assign_lanes
from ._window_names import TrackKey

_FLOW_PHASES: Final = frozenset("stf")


class WindowSurvey:
    """Slices and flow events of one output, by the number of the event in its file."""

    def __init__(self) -> None:
        self.first_ns: int | None = None
        self._track_numbers: dict[TrackKey, int] = {}
        self._slices = array("q")
        self._slice_tracks = array("l")
        self._starts = array("q")
        self._ends = array("q")
        self._flows = array("q")
        self._flow_tracks = array("l")
        self._flow_times = array("q")
        self._flow_kinds: list[str] = []
        self._flow_keys = array("l")
        self._key_numbers: dict[Hashable, int] = {}

    @property
    def tracks(self) -> list[TrackKey]:
        """Every track that has an event."""
        return list(self._track_numbers)

    def add(self, number: int, key: TrackKey, event: TraceEvent, start: int, end: int) -> None:
        """Note event `number`, from `start` to `end` (reference ns)."""
        if self.first_ns is None or start < self.first_ns:
            self.first_ns = start
        track = self._track_numbers.setdefault(key, len(self._track_numbers))
        if event.ph == "X":
            self._slices.append(number)
            self._slice_tracks.append(track)
            self._starts.append(start)
            self._ends.append(end)
        elif event.ph in _FLOW_PHASES:
            category = b"" if event.cat is UNSET else bytes(event.cat)
            flow_key = (category, str(event.id))
            self._flows.append(number)
            self._flow_tracks.append(track)
            self._flow_times.append(start)
            self._flow_kinds.append(event.ph)
            self._flow_keys.append(self._key_numbers.setdefault(flow_key, len(self._key_numbers)))

    def find_lanes(self) -> tuple[dict[int, int], dict[TrackKey, int]]:
        """Lane of every slice that cannot stay on lane 0, and the highest lane of each such track."""
        moved: dict[int, int] = {}
        highest: dict[TrackKey, int] = {}
        keys = self.tracks
        for track, order in self._by_track():
            spans = [(self._starts[i], self._ends[i]) for i in order]
            if not _crosses(spans):
                continue
            for index, lane in zip(order, assign_lanes(spans), strict=True):
                if lane:
                    moved[self._slices[index]] = lane
                    highest[keys[track]] = max(highest.get(keys[track], 0), lane)
        return moved, highest

    def find_flows(self, ids: IdSource) -> dict[int, int]:
        """The new id of every flow event."""
        listed = zip(self._flow_times, self._flow_kinds, self._flow_keys, strict=True)
        return dict(zip(self._flows, pair_flows(listed, ids), strict=True))

    def follow_slices(self, moved: dict[int, int]) -> dict[int, int]:
        """Lane of every flow event whose slice has moved: the innermost that is open at its time."""
        if not moved or not self._flows:
            return {}
        lanes: dict[int, int] = {}
        with_flows = set(self._flow_tracks)
        for track, order in self._by_track():
            if track not in with_flows or not any(self._slices[i] in moved for i in order):
                continue
            starts = [self._starts[i] for i in order]
            for flow, flow_track in enumerate(self._flow_tracks):
                if flow_track != track:
                    continue
                at = self._flow_times[flow]
                for place in range(bisect_right(starts, at) - 1, -1, -1):
                    index = order[place]
                    if self._ends[index] > at:
                        lanes[self._flows[flow]] = moved.get(self._slices[index], 0)
                        break
        return {number: lane for number, lane in lanes.items() if lane}

    def _by_track(self) -> Iterator[tuple[int, list[int]]]:
        """(track, indices of its slices by start, the longer first)."""
        if not self._slices:
            return
        tracks = np.frombuffer(self._slice_tracks, dtype=np.dtype(self._slice_tracks.typecode))
        starts = np.frombuffer(self._starts, dtype=np.int64)
        ends = np.frombuffer(self._ends, dtype=np.int64)
        order = np.lexsort((-ends, starts, tracks))
        bounds = np.flatnonzero(np.diff(tracks[order])) + 1
        for group in np.split(order, bounds):
            yield int(tracks[group[0]]), group.tolist()


def _crosses(spans: list[tuple[int, int]]) -> bool:
    """Whether any of the slices, sorted by start and the longer first, outlives one it began in."""
    open_ends: list[int] = []
    for start, end in spans:
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        if open_ends and end > open_ends[-1]:
            return True
        open_ends.append(end)
    return False
