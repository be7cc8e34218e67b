"""What of a trace is written, counted as viewers show it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ._columns import FLOW_START, INSTANT, SHOWN_ASYNC, SHOWN_OLD_ASYNC, SLICE, Bools, Ints, Kinds

if TYPE_CHECKING:
    from ._survey import Table


def count_events(table: Table, is_left: Bools) -> Counter[str]:
    """Slices, arrows and the like among the events that are left."""
    counts: Counter[str] = Counter()
    kinds = table.kinds[is_left]
    counts["slices"] = int((kinds == SLICE).sum())
    counts["instants"] = int((kinds == INSTANT).sum())
    counts["asynchronous slices"] = int(((kinds == SHOWN_ASYNC) | (kinds == SHOWN_OLD_ASYNC)).sum())
    left = is_left[table.flow_events]
    events = table.flow_events[left]
    counts.update(
        count_arrows(
            table.flow_ids[left],
            table.flow_kinds[left],
            table.starts[events],
            events,
            table.flow_slices[left] >= 0,
        )
    )
    return +counts


def count_arrows(ids: Ints, kinds: Kinds, times: Ints, events: Ints, has_slice: Bools) -> Counter[str]:
    """What becomes of the arrows whose ends these are, as Perfetto draws them.

    An arrow leads from a start, or a step after it, to every step or end that follows it in time, in the
    file where times are equal; both must lie on slices. `events` are their places in the file.

    >>> kinds, times = np.array([4, 5, 6, 6]), np.array([10, 20, 30, 5])
    >>> count_arrows(np.ones(4, int), kinds, times, np.arange(4), np.ones(4, bool))
    Counter({'arrows': 2, 'arrows that end before they begin': 1})
    """
    if not len(ids):
        return Counter()
    order = np.lexsort((events, times, ids))
    grouped, bound, is_start = ids[order], has_slice[order], kinds[order] == FLOW_START
    firsts = np.flatnonzero(np.concatenate(([True], grouped[1:] != grouped[:-1])))
    group = np.cumsum(np.concatenate(([0], grouped[1:] != grouped[:-1])))
    places = np.arange(len(order))

    def first_of(which: Bools) -> Ints:
        found: Ints = np.minimum.reduceat(np.where(which, places, len(order)), firsts)[group]
        return found

    start, drawn_from = first_of(is_start), first_of(is_start & bound)
    has_tail = np.bincount(group[~is_start], minlength=len(firsts))[group] > 0
    drawn = ~is_start & bound & (places > drawn_from)
    early = ~is_start & (places < start) & (start < len(order))
    alone = np.where(is_start, ~has_tail, start == len(order))
    found = {
        "arrows": drawn,
        "arrows that end before they begin": early,
        "arrows that lie on no slice at one end": ~is_start & ~drawn & ~early & ~alone,
        "ends of arrows without the other end": alone,
    }
    return +Counter({what: int(which.sum()) for what, which in found.items()})
