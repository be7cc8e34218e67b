"""Flow and async ids that are unique in the output: rule 3."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from itertools import count
from typing import Final

#: Perfetto reads ids as signed 64-bit integers.
LARGEST_ID: Final = 2**63 - 1


class IdSource:
    """Unique positive integers of one output file."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def new(self) -> int:
        """The next one."""
        number = next(self._numbers)
        assert number <= LARGEST_ID
        return number


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
