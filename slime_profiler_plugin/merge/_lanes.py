"""Rows for slices that would cross: rule 4.

Perfetto keeps the slices of one track as a stack. A slice that outlives its parent by as
little as 1 ns is dropped there, so it moves to another lane; its times stay as measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush


def nesting_order(slices: Sequence[tuple[int, int]]) -> list[int]:
    """Indices of (start, end) slices by start, the longer of two first; stable."""
    return sorted(range(len(slices)), key=lambda i: (slices[i][0], -slices[i][1]))


def assign_lanes(slices: Sequence[tuple[int, int]], parents: Sequence[int | None] | None = None) -> list[int]:
    """A lane for each (start, end) slice such that no two on one lane cross.

    `parents` gives, where known, the index of the slice that each belongs to: the lane of the
    parent is tried first, then all from 0 on. A slice that ends when another begins does not cross it.
    """
    lanes = [0] * len(slices)
    open_lanes = _OpenLanes()
    for index in nesting_order(slices):
        start, end = slices[index]
        open_lanes.close_until(start)
        parent = parents[index] if parents is not None else None
        if parent is not None and parent != index and slices[parent][0] <= start:
            lanes[index] = open_lanes.add(end, lanes[parent])
        else:
            lanes[index] = open_lanes.add(end)
    return lanes


def assign_rows(intervals: Sequence[tuple[int, int]]) -> list[int]:
    """A row for each (start, end) interval such that no two on one row overlap; rows are reused."""
    rows = [0] * len(intervals)
    busy: list[tuple[int, int]] = []  # heap of (end, row)
    unused: list[int] = []  # heap of rows
    for index in nesting_order(intervals):
        start, end = intervals[index]
        while busy and busy[0][0] <= start:
            heappush(unused, heappop(busy)[1])
        row = heappop(unused) if unused else len(busy)
        heappush(busy, (end, row))
        rows[index] = row
    return rows


class _OpenLanes:
    """The slices that are open at a time, by lane, and the first lane that has room for another.

    A tree finds that lane: its leaves are the ends of the innermost open slices of the lanes, infinite where
    none is open, and a node is the larger of its two. So thousands of slices that cross cost little more each
    than a few do.
    """

    def __init__(self) -> None:
        self._stacks: list[list[int]] = []
        self._ends: list[tuple[int, int]] = []  # heap of (end, lane) of what is open
        self._room: list[float] = [math.inf, math.inf]  # the root is at 1, node i has 2i and 2i + 1
        self._leaves = 1

    def close_until(self, at: int) -> None:
        """Close what has ended at `at`."""
        while self._ends and self._ends[0][0] <= at:
            _, lane = heappop(self._ends)
            stack = self._stacks[lane]
            stack.pop()
            self._set_room(lane, stack[-1] if stack else math.inf)

    def add(self, end: int, preferred: int = 0) -> int:
        """Open a slice that ends at `end` on the preferred lane, else on the first that has room."""
        lane = preferred
        if self._room[self._leaves + preferred] < end:
            if self._room[1] < end:
                self._grow()
            lane = self._first_with_room(end)
        if lane == len(self._stacks):
            self._stacks.append([])
        self._stacks[lane].append(end)
        heappush(self._ends, (end, lane))
        self._set_room(lane, end)
        return lane

    def _first_with_room(self, end: int) -> int:
        node = 1
        while node < self._leaves:
            node *= 2
            node += self._room[node] < end
        return node - self._leaves

    def _set_room(self, lane: int, room: float) -> None:
        node = self._leaves + lane
        self._room[node] = room
        while node > 1:
            node //= 2
            larger = max(self._room[2 * node], self._room[2 * node + 1])
            if self._room[node] == larger:
                break
            self._room[node] = larger

    def _grow(self) -> None:
        """Twice the lanes."""
        leaves = [*self._room[self._leaves :], *[math.inf] * self._leaves]
        self._leaves *= 2
        self._room = [math.inf] * self._leaves + leaves
        for node in range(self._leaves - 1, 0, -1):
            self._room[node] = max(self._room[2 * node], self._room[2 * node + 1])
