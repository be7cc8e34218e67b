"""Laying out the items of one process on rows and lanes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ._items import Item, RowKey
from ._lanes import assign_lanes, assign_rows, nesting_order


class Row(NamedTuple):
    """One track: its items by start, the longer first. Lane 0 is the row itself."""

    key: RowKey
    lane: int
    items: list[Item]

    def free_stretches(self) -> list[list[tuple[int, int]]]:
        """Of every item, the parts (start, end) that no other slice of the row lies over; of a mark, none."""
        free: list[list[tuple[int, int]]] = [[] for _ in self.items]
        covered_until = [item.start_ns for item in self.items]
        around: list[int] = []

        def close(index: int) -> None:
            end = self.items[index].end_ns
            if covered_until[index] < end:
                free[index].append((covered_until[index], end))

        for index, item in enumerate(self.items):
            if item.is_mark:
                continue
            while around and self.items[around[-1]].end_ns <= item.start_ns:
                close(around.pop())
            if around:
                outer = around[-1]
                if covered_until[outer] < item.start_ns:
                    free[outer].append((covered_until[outer], item.start_ns))
                covered_until[outer] = item.end_ns
            around.append(index)
        for index in around:
            close(index)
        return free


def lay_out(items: Sequence[Item], order: Callable[[RowKey], Any]) -> list[Row]:
    """All items on rows on which nothing crosses, rows in `order`, lanes of a row together."""
    by_row: dict[RowKey, list[Item]] = defaultdict(list)
    for item in items:
        by_row[item.row].append(item)
    rows: list[Row] = []
    for key in sorted(by_row, key=order):
        group = by_row[key]
        lanes = _task_lanes(group) if key[0] == "tasks" else _lanes(group)
        by_lane: dict[int, list[Item]] = defaultdict(list)
        for index in nesting_order([(item.start_ns, item.end_ns) for item in group]):
            by_lane[lanes[index]].append(group[index])
        rows.extend(Row(key, lane, by_lane[lane]) for lane in sorted(by_lane))
    return rows


def _lanes(group: list[Item]) -> list[int]:
    index_of = {item.phase_id: index for index, item in enumerate(group) if item.phase_id is not None}
    parents = [None if item.parent is None else index_of.get(item.parent) for item in group]
    return assign_lanes([(item.start_ns, item.end_ns) for item in group], parents)


def _task_lanes(group: list[Item]) -> list[int]:
    """Each task keeps lanes of its own for as long as it lives; then others may have them."""
    tasks: dict[int | None, list[int]] = defaultdict(list)
    for index, item in enumerate(group):
        tasks[item.task].append(index)
    lanes = [0] * len(group)
    strips: list[tuple[int, int]] = []
    members: list[list[int]] = []
    for indices in tasks.values():
        own = _lanes([group[i] for i in indices])
        extent = (min(group[i].start_ns for i in indices), max(group[i].end_ns for i in indices))
        by_lane: dict[int, list[int]] = defaultdict(list)
        for index, lane in zip(indices, own, strict=True):
            by_lane[lane].append(index)
        for lane in sorted(by_lane):
            strips.append(extent)
            members.append(by_lane[lane])
    for row, indices in zip(assign_rows(strips), members, strict=True):
        for index in indices:
            lanes[index] = row
    return lanes
