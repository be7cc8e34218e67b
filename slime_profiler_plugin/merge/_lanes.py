"""Rows for slices that would cross: rule 4.

Perfetto keeps the slices of one track as a stack. A slice that outlives its parent by as
little as 1 ns is dropped there, so it moves to another lane; its times stay as measured.
"""

from __future__ import annotations

from collections.abc import Sequence


def nesting_order(slices: Sequence[tuple[int, int]]) -> list[int]:
    """Indices of (start, end) slices by start, the longer of two first; stable."""
    return sorted(range(len(slices)), key=lambda i: (slices[i][0], -slices[i][1]))


def assign_lanes(slices: Sequence[tuple[int, int]], parents: Sequence[int | None] | None = None) -> list[int]:
    """A lane for each (start, end) slice such that no two on one lane cross.

    `parents` gives, where known, the index of the slice that each belongs to: the lane of the
    parent is tried first, then all from 0 on. A slice that ends when another begins does not cross it.
    """
    lanes = [0] * len(slices)
    stacks: list[list[int]] = []
    for index in nesting_order(slices):
        start, end = slices[index]
        parent = parents[index] if parents is not None else None
        order = list(range(len(stacks)))
        if parent is not None and parent != index and slices[parent][0] <= start and stacks:
            order.insert(0, lanes[parent])
        lanes[index] = _place(stacks, order, start, end)
    return lanes


def assign_rows(intervals: Sequence[tuple[int, int]]) -> list[int]:
    """A row for each (start, end) interval such that no two on one row overlap; rows are reused."""
    rows = [0] * len(intervals)
    busy_until: list[int] = []
    for index in nesting_order(intervals):
        start, end = intervals[index]
        row = next((r for r, until in enumerate(busy_until) if until <= start), len(busy_until))
        if row == len(busy_until):
            busy_until.append(end)
        else:
            busy_until[row] = end
        rows[index] = row
    return rows


def _place(stacks: list[list[int]], order: list[int], start: int, end: int) -> int:
    for lane in order:
        stack = stacks[lane]
        while stack and stack[-1] <= start:
            stack.pop()
        if not stack or end <= stack[-1]:
            stack.append(end)
            return lane
    stacks.append([end])
    return len(stacks) - 1
