"""Which slice each slice of a track lies in, for all of them at once."""

from __future__ import annotations

from typing import Final

import numpy as np

from ._kinds import Ints

#: Looks at a slice, on average, after which following them one by one is quicker.
_MOST_LOOKS: Final = 32
#: What a round costs besides, in looks.
_LOOKS_A_ROUND: Final = 500


def find_parents(starts: Ints, ends: Ints) -> Ints | None:
    """For each slice the place of the last one before it that is open when it starts, or -1.

    Slices are in order of start, the longer first; one that ends when another starts is not open then. Each
    begins with the slice right before it. While that has ended, its own candidate takes its place: all
    between the two had ended before it began. All slices do so together, and along a row of siblings the way
    doubles each time. ``None`` where that takes too long.

    >>> find_parents(np.array([0, 1, 3, 5, 9]), np.array([8, 2, 4, 7, 10])).tolist()
    [-1, 0, 0, 0, -1]
    """
    found = np.arange(-1, len(starts) - 1)
    active = np.arange(1, len(starts))
    left = _MOST_LOOKS * (len(starts) + _LOOKS_A_ROUND)
    while left > 0:
        left -= len(active) + _LOOKS_A_ROUND
        candidates = found[active]
        has_ended = (candidates >= 0) & (ends[candidates] <= starts[active])
        active = active[has_ended]
        if not len(active):
            return found
        found[active] = found[candidates[has_ended]]
    return None
