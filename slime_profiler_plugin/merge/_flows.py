"""Flow and async ids that are unique in the output: rule 3."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from itertools import count
from typing import Final, NamedTuple

import numpy as np

from ._kinds import FLOW_END, FLOW_START, Bools, Ints, Kinds

#: Perfetto reads ids as signed 64-bit integers.
LARGEST_ID: Final = 2**63 - 1
_LETTERS: Final = {FLOW_START: "s", FLOW_END: "f"}


class IdSource:
    """Unique positive integers of one output file."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def new(self) -> int:
        """The next one."""
        number = next(self._numbers)
        assert number <= LARGEST_ID
        return number

    def reserve(self, number: int) -> int:
        """The next `number` of them; gives the one before the first."""
        first = next(self._numbers)
        self._numbers = count(first + number)
        assert first + number <= LARGEST_ID
        return first - 1


class Flows(NamedTuple):
    """The flow events of a trace.

    `ids` run from 1 to `highest`. `partners`: the place of the other end among the flow events where an id
    has one start and one end, else -1.
    """

    ids: Ints
    highest: int
    partners: Ints


def number_flows(keys: Ints, times: Ints, kinds: Kinds, names: Ints) -> Flows:
    """Ids for the flow events of one input.

    A key with one start and one end is a flow, whichever of them is earlier: a kernel may have begun before
    its launch by the clocks. All other keys are taken apart by `pair_flows`, each name by itself.
    """
    number = len(keys)
    ids, partners = np.zeros(number, np.int64), np.full(number, -1, np.int64)
    if not number:
        return Flows(ids, 0, partners)
    order = np.lexsort((kinds, keys))
    grouped = keys[order]
    firsts = np.flatnonzero(np.concatenate(([True], grouped[1:] != grouped[:-1])))
    sizes = np.diff(np.append(firsts, number))
    pairs = firsts[sizes == 2]
    is_pair = (kinds[order[pairs]] == FLOW_START) & (kinds[order[pairs + 1]] == FLOW_END)
    pairs = pairs[is_pair]
    starts, ends = order[pairs], order[pairs + 1]
    ids[starts] = ids[ends] = np.arange(1, len(pairs) + 1)
    partners[starts], partners[ends] = ends, starts
    others = np.flatnonzero(ids == 0)
    if not len(others):
        return Flows(ids, len(pairs), partners)
    source = IdSource()
    source.reserve(len(pairs))
    listed = zip(
        times[others].tolist(),
        (_LETTERS.get(kind, "t") for kind in kinds[others].tolist()),
        zip(keys[others].tolist(), names[others].tolist(), strict=True),
        strict=True,
    )
    ids[others] = pair_flows(listed, source)
    _join_partners(others, ids, kinds, partners)
    return Flows(ids, int(ids.max()), partners)


def follow_start(ids: Ints, kinds: Kinds, times: Ints) -> Bools:
    """Which flow events come after the start of their flow.

    >>> kinds = np.array([FLOW_START, FLOW_END, FLOW_END])
    >>> follow_start(np.array([1, 1, 2]), kinds, np.array([3, 4, 5])).tolist()
    [False, True, False]
    """
    begins = np.full(int(ids.max(initial=0)) + 1, np.iinfo(np.int64).max)
    is_start = kinds == FLOW_START
    begins[ids[is_start]] = times[is_start]
    follow: Bools = times > begins[ids]
    return follow


def _join_partners(places: Ints, ids: Ints, kinds: Kinds, partners: Ints) -> None:
    """Where `pair_flows` left one start and one end with an id, they are partners."""
    by_id: dict[int, list[int]] = {}
    for place in places.tolist():
        by_id.setdefault(int(ids[place]), []).append(place)
    for both in by_id.values():
        if len(both) == 2 and {int(kinds[place]) for place in both} == {FLOW_START, FLOW_END}:
            partners[both[0]], partners[both[1]] = both[1], both[0]


def pair_flows(events: Iterable[tuple[int, str, Hashable]], ids: IdSource) -> list[int]:
    """The new id of every flow event (time, ``s`` ``t`` or ``f``, key) of one input.

    Events with one key belong together as they follow in time: each start opens a flow of its
    own, ends close the oldest one that is open. A further end joins the last flow that was
    closed; an end that no start precedes stays alone.
    """
    listed = list(events)
    new = [0] * len(listed)
    open_flows: dict[Hashable, deque[int]] = {}
    last: dict[Hashable, int] = {}
    order = sorted(range(len(listed)), key=lambda i: (listed[i][0], listed[i][1] != "s"))
    for index in order:
        _, kind, key = listed[index]
        waiting = open_flows.setdefault(key, deque())
        if kind == "s":
            flow = ids.new()
            waiting.append(flow)
        elif kind == "f" and waiting:
            flow = waiting.popleft()
            last[key] = flow
        elif waiting:
            flow = waiting[0]
        else:
            flow = last[key] if key in last else ids.new()
        new[index] = flow
    return new
