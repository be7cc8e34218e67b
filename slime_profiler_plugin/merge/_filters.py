"""Leaving out events that were not asked for, and the arrows that would be left without their slices."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import UNSET, Raw, UnsetType

from slime_profiler_plugin.read import TraceEvent

from ._columns import Bools, Ints

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


def drop_arrows(slices: Ints, partners: Ints, is_gone: Bools) -> Bools:
    """Which flow events go: those whose slice is gone, and those whose other end goes.

    `slices`: the event of the slice that each lies on, -1 for none; `partners`: the place of its other end,
    -1 for none; `is_gone` by number of the event.
    """
    if not len(slices):
        return np.zeros(0, np.bool_)
    gone = (slices >= 0) & is_gone[slices]
    both: Bools = gone | ((partners >= 0) & gone[partners])
    return both
