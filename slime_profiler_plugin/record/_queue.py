"""What waits for the writer: bounded, never blocking, losses counted exactly."""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

import msgspec

from slime_profiler_plugin import schema

from ._drops import Drops
from ._values import as_text


class Record(NamedTuple):
    """A phase or mark as the hot path has it.

    It queues a plain tuple of these fields: tuples of plain values are soon let go by the
    cyclic garbage collector. Queued objects would make it walk the whole heap, 75 ms with
    torch loaded, for every 30,000 of them.
    """

    name: str
    #: ``None``: a mark.
    id: int | None
    parent: int | None
    rollout: schema.Rollout
    start_ns: int
    end_ns: int
    tid: int
    task: int | None
    fields: dict[str, object] | None
    error: str | None


RawRecord: TypeAlias = tuple[
    str,
    "int | None",
    "int | None",
    schema.Rollout,
    int,
    int,
    int,
    "int | None",
    "dict[str, object] | None",
    "str | None",
]
Item: TypeAlias = "RawRecord | schema.Line"
_NAMED: Final = frozenset({"phase", "open", "mark"})

#: About the bytes of one encoded phase without fields: to tell from the number of records
#: when a full write has gathered.
TYPICAL_LINE_BYTES: Final = 180
_AT_ONCE: Final = 1_000


class RecordQueue:
    """A deque with two limits.

    Below `limit` items the hot path appends by itself. The limit is about one full write
    until the writer has been woken for it, then the capacity; past that the newest drop.
    """

    def __init__(self, capacity: int, flush_bytes: int, drops: Drops, wake: Callable[[], None]) -> None:
        self.items: deque[Item] = deque()
        self.capacity = capacity
        self._full_write = min(capacity, max(1, flush_bytes // TYPICAL_LINE_BYTES))
        self.limit = self._full_write
        self._drops = drops
        self._wake = wake

    def put(self, item: Item) -> None:
        """Append; at the limit as `crowded` says."""
        if len(self.items) < self.limit:
            self.items.append(item)
        else:
            self.crowded(item)

    def crowded(self, item: Item) -> None:
        """Append and wake the writer, or drop and count when full.

        Nothing when the queue has no capacity any more: there is no file to say it in.
        """
        if len(self.items) < self.capacity:
            self.items.append(item)
            self.limit = self.capacity
            self._wake()
        elif self.capacity:
            what, name = kind_and_name(item)
            self._drops.add(what, "queue full", 1, {name: 1} if name else None)

    def force(self, item: Item) -> None:
        """Append past the limits: for the few lines that others depend on."""
        if self.capacity:
            self.items.append(item)

    def take(self, most: int) -> list[Item]:
        """Up to `most` of the oldest."""
        self.limit = min(self._full_write, self.capacity)
        pop = self.items.popleft
        taken: list[Item] = []
        with contextlib.suppress(IndexError):  # no more; another thread may be closing the queue
            taken.extend(pop() for _ in range(most))  # what came before stays
        return taken

    def close(self, reason: str) -> None:
        """Nobody comes for the items any more: drop and count them, take no others."""
        self.capacity = self.limit = 0
        lost: Counter[tuple[str, str]] = Counter()
        while waiting := self.take(_AT_ONCE):
            lost.update(map(kind_and_name, waiting))
        for (what, name), count in lost.items():
            self._drops.add(what, reason, count, {name: count} if name else None)

    def abandon(self) -> None:
        """Take nothing more, count nothing: records are switched off, or this is a forked child."""
        self.capacity = self.limit = 0
        self.items.clear()


def line_kind_and_name(line: msgspec.Struct) -> tuple[str, str]:
    """`kind_and_name` of a line."""
    kind = str(line.__struct_config__.tag)
    return kind, getattr(line, "name", "") if kind in _NAMED else ""


def kind_and_name(item: Item) -> tuple[str, str]:
    """What a `Drop` line says of it; the name is empty for what is no phase or mark."""
    if isinstance(item, tuple):
        return ("mark" if item[1] is None else "phase"), as_text(item[0])
    return line_kind_and_name(item)
