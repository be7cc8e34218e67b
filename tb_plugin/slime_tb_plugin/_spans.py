"""Lengths of stretches of time that may overlap. All times are integer nanoseconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

Span = tuple[int, int]
OVERLAP: Final = "overlap"
IDLE: Final = "idle"
OTHER: Final = "other"


def union(spans: Iterable[Span]) -> list[Span]:
    """The same time without overlaps, in order.

    >>> union([(5, 9), (0, 2), (1, 3)])
    [(0, 3), (5, 9)]
    """
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > start:
            merged.append((start, end))
    return merged


def length(spans: Iterable[Span]) -> int:
    """How long all of them take together, no time counted twice.

    >>> length([(5, 9), (0, 2), (1, 3)])
    7
    """
    return sum(end - start for start, end in union(spans))


def clip(spans: Iterable[Span], start: int, end: int) -> list[Span]:
    """What of them lies between `start` and `end`.

    >>> clip([(0, 3), (5, 9)], 2, 6)
    [(2, 3), (5, 6)]
    """
    clipped = ((max(start, first), min(end, last)) for first, last in spans)
    return [(first, last) for first, last in clipped if last > first]


def partition(parts: Mapping[str, Iterable[Span]], start: int, end: int) -> dict[str, int]:
    """How long each part ran alone between `start` and `end`, how long several did, how long none.

    The values add up to `end` - `start`. A sweep over the ends of all stretches counts at each which
    parts are running. ``other`` only counts where no other part runs.

    >>> partition({"train": [(0, 4)], "sync": [(3, 5)], "other": [(3, 7)]}, 0, 10)
    {'train': 3, 'sync': 1, 'other': 2, 'overlap': 1, 'idle': 3}
    """
    edges: dict[int, set[str]] = defaultdict(set)
    for name, spans in parts.items():
        for span in union(clip(spans, start, end)):
            for at in span:
                edges[at] ^= {name}
    lengths = {**dict.fromkeys(parts, 0), OVERLAP: 0, IDLE: 0}
    running: set[str] = set()
    before = start
    for at in [*sorted(edges), end]:
        named = running - {OTHER} or running
        told = OVERLAP if len(named) > 1 else next(iter(named), IDLE)
        lengths[told] += at - before
        running ^= edges.get(at, set())
        before = at
    return lengths
