"""What of a trace is written, counted as viewers show it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ._kinds import FLOW_START, INSTANT, SHOWN_ASYNC, SHOWN_OLD_ASYNC, SLICE, Bools, Ints, Kinds

if TYPE_CHECKING:
    from ._table import Table


def count_events(table: Table, is_left: Bools) -> Counter[str]:
    """Slices, arrows and the like among the events that are left."""
    counts: Counter[str] = Counter()
    kinds = table.kinds[is_left]
    counts["slices"] = int((kinds == SLICE).sum())
    counts["instants"] = int((kinds == INSTANT).sum())
    counts["asynchronous slices"] = int(((kinds == SHOWN_ASYNC) | (kinds == SHOWN_OLD_ASYNC)).sum())
    left = is_left[table.flow_events]
    events, slices = table.flow_events[left], table.flow_slices[left]
    starts = table.starts[slices]
    times = np.maximum(table.starts[events], starts)
    # What a slice says of itself, and what waits for it, comes before what else happens at its start.
    waits = (slices == events) | (starts > table.starts[events])
    places = events + np.where(waits, 0, len(is_left))
    counts.update(count_arrows(table.flow_ids[left], table.flow_kinds[left], times, places))
    return +counts


def count_arrows(ids: Ints, kinds: Kinds, times: Ints, places: Ints) -> Counter[str]:
    """What becomes of the arrows whose ends these are, as Perfetto draws them.

    An arrow leads from a start, or a step after it, to every step or end that follows it in time, by `places`
    where times are equal. All lie on slices.

    >>> kinds, times = np.array([4, 5, 6, 6]), np.array([10, 20, 30, 5])
    >>> count_arrows(np.ones(4, int), kinds, times, np.arange(4))
    Counter({'arrows': 2, 'arrows that end before they begin': 1})
    """
    if not len(ids):
        return Counter()
    order = np.lexsort((places, times, ids))
    grouped, is_start = ids[order], kinds[order] == FLOW_START
    is_first = np.concatenate(([True], grouped[1:] != grouped[:-1]))
    firsts, group = np.flatnonzero(is_first), np.cumsum(is_first) - 1
    at = np.arange(len(order))
    start = np.minimum.reduceat(np.where(is_start, at, len(order)), firsts)[group]
    has_tail = np.bincount(group[~is_start], minlength=len(firsts))[group] > 0
    has_start = start < len(order)
    found = {
        "arrows": ~is_start & (at > start),
        "arrows that end before they begin": ~is_start & has_start & (at < start),
        "ends of arrows without the other end": np.where(is_start, ~has_tail, ~has_start),
    }
    return +Counter({what: int(which.sum()) for what, which in found.items()})
