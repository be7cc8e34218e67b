"""Leaving out events that were not asked for, and the arrows that would be left without their slices."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import UNSET, Raw, UnsetType

from slime_profiler_plugin.read import TraceEvent

from ._kinds import FLOW_START, Bools, Ints, Kinds

#: Why something that was not asked for is left out.
NOT_OF_CATEGORY: Final = "of a category that was not asked for"
TOO_SHORT: Final = "shorter than asked for"
OUTSIDE_WINDOW: Final = "outside the window asked for"
WITHOUT_SLICE: Final = "arrow of a slice that was not asked for"


class CategoryMarks:
    """Which events of a trace are of one of the categories; an event may name several, with commas."""

    def __init__(self, categories: frozenset[str]) -> None:
        self._categories = categories
        self._parts: list[Bools] = []
        self._known: dict[bytes, bool] = {}

    def add(self, piece: list[TraceEvent]) -> None:
        """Take in the next events."""
        self._parts.append(np.array([self._is_asked(event.cat) for event in piece], dtype=np.bool_))

    def all(self) -> Bools:
        """By number of the event."""
        return np.concatenate(self._parts) if self._parts else np.zeros(0, np.bool_)

    def _is_asked(self, category: Raw | UnsetType) -> bool:
        text = b'""' if category is UNSET else bytes(category)
        found = self._known.get(text)
        if found is None:
            named = text.decode("utf-8", "replace").strip('"').split(",")
            found = self._known[text] = not self._categories.isdisjoint(name.strip() for name in named)
        return found


def drop_arrows(events: Ints, ids: Ints, kinds: Kinds, slices: Ints, is_gone: Bools) -> Bools:
    """Which ends of arrows go: those that are gone or whose slice is, and what then leads nowhere.

    An arrow stays while its start and something that it leads to do. By end: its event, the id of its arrow,
    its kind, the event of the slice it lies on (-1: none); `is_gone` by number of the event.

    >>> both, kinds = np.array([0, 1]), np.array([FLOW_START, FLOW_START + 2])
    >>> drop_arrows(both, np.array([1, 1]), kinds, np.array([2, 3]), np.arange(4) == 3).tolist()
    [True, True]
    """
    if not len(events):
        return np.zeros(0, np.bool_)
    gone: Bools = is_gone[events] | ((slices >= 0) & is_gone[slices])
    if not gone.any():
        return gone
    count = int(ids.max()) + 1
    is_start = kinds == FLOW_START
    before, left = np.bincount(ids, minlength=count), np.bincount(ids[~gone], minlength=count)
    had_start = np.bincount(ids[is_start], minlength=count) > 0
    has_start = np.bincount(ids[is_start & ~gone], minlength=count) > 0
    is_broken = (left < before) & had_start & (~has_start | (left < 2))
    return gone | is_broken[ids]
