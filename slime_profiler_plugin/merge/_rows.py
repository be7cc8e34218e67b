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

    def free_stretches(self, index: int) -> tuple[tuple[int, int], ...]:
        """The parts (start, end) of a slice that no other slice of the row lies over."""
        outer = self.items[index]
        free = []
        at = outer.start_ns
        for item in self.items[index + 1 :]:
            if item.start_ns >= outer.end_ns:
                break
            if item.is_mark:
                continue
            if item.start_ns > at:
                free.append((at, item.start_ns))
            at = max(at, item.end_ns)
        if at < outer.end_ns:
            free.append((at, outer.end_ns))
        return tuple(free)


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
        for lane in range(max(own) + 1):
            strips.append(extent)
            members.append([i for i, at in zip(indices, own, strict=True) if at == lane])
    for row, indices in zip(assign_rows(strips), members, strict=True):
        for index in indices:
            lanes[index] = row
    return lanes
