"""The events of a file as flat arrays, and how they are spoken of.

An event takes 29 bytes, an arrow's end 18 more, a launch or kernel 16.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from slime_profiler_plugin.clock import ns_to_decimal_us
from slime_profiler_plugin.read import plain_id

#: In place of a time or duration that is not there, or is no number.
NO_TIME: Final = -(2**63)
#: What is wrong with an id; 0: nothing.
FINE, NO_INTEGER, LARGE_ID, NO_ID = range(4)
#: The columns that have a row for each event.
COLUMNS: Final = ("phase", "track", "start", "length", "name", "category")
#: Longer names are cut in examples.
_LONGEST: Final = 60
_NAMELESS: Final = "(name not kept)"

Array = NDArray[Any]


@dataclass
class Ids:
    """Events with an id: `index` of the event, `key` of category and id, what is wrong with the id."""

    index: Array
    key: Array
    problem: Array
    encloses: Array


@dataclass
class Names:
    """What the metadata events of a file say, by process and thread as they are spelled there."""

    processes: dict[Hashable, list[str]] = field(default_factory=dict)
    threads: dict[tuple[Hashable, Hashable], list[str]] = field(default_factory=dict)
    #: Processes whose label says that they are devices.
    devices: set[Hashable] = field(default_factory=set)
    negative: int = 0
    spelled: set[Hashable] = field(default_factory=set)


class Begins(NamedTuple):
    """Begin events and the ends that close them, begins that none closes, ends that close none, by time."""

    begins: Array
    ends: Array
    unclosed: list[int]
    stray: list[int]


class Nesting(NamedTuple):
    """Slices, from X or from B to E, by track and start, the longer first: events, tracks, starts, ends."""

    events: Array
    rows: Array
    starts: Array
    ends: Array


class Events:
    """All events of a file but its metadata events; row i of every array is one event."""

    def __init__(self) -> None:
        self.phase: Array = np.empty(0, np.uint8)
        self.track: Array = np.empty(0, np.int32)
        self.start: Array = np.empty(0, np.int64)
        self.length: Array = np.empty(0, np.int64)
        self.name: Array = np.empty(0, np.int32)
        self.category: Array = np.empty(0, np.int32)
        self.flows = Ids(*(np.empty(0, np.int64) for _ in range(4)))
        self.asyncs = Ids(*(np.empty(0, np.int64) for _ in range(4)))
        self.linked: Array = np.empty(0, np.int64)
        self.correlation: Array = np.empty(0, np.int64)
        self.tracks: list[tuple[Hashable, Hashable]] = []
        self.categories: list[str] = []
        self.names = Names()
        self.string_times = 0
        self.texts: list[bytes] = []

    def __len__(self) -> int:
        return len(self.phase)

    def shrink(self) -> None:
        """Keep what is compared with other files: tracks and ids, each once."""
        for table in (self.flows, self.asyncs):
            usable = np.unique(table.key[table.problem != NO_ID])
            table.index = table.encloses = np.empty(0, np.int64)
            table.key, table.problem = usable, np.zeros(len(usable), np.uint8)
        self.correlation = np.unique(self.correlation)
        self.linked = np.empty(0, np.int64)
        for name in COLUMNS:
            setattr(self, name, getattr(self, name)[:0])
        for name in ("row", "slices", "timed", "begins", "nesting"):
            self.__dict__.pop(name, None)
        self.texts = []
        self.names = Names()

    def of_phase(self, letters: str) -> Array:
        """Rows of the events with one of these phase letters."""
        return np.flatnonzero(np.isin(self.phase, [ord(letter) for letter in letters]))

    def of_category(self, names: Iterable[str]) -> Array:
        """A mask of the events of these categories."""
        wanted = set(names)
        numbers = [i for i, name in enumerate(self.categories) if name in wanted]
        mask: Array = np.isin(self.category, numbers)
        return mask

    @cached_property
    def row(self) -> Array:
        """The track of each event, however its pid and tid are spelled."""
        known: dict[Hashable, int] = {}
        numbers = [known.setdefault((plain_id(pid), plain_id(tid)), len(known)) for pid, tid in self.tracks]
        rows: Array = np.array(numbers or [0], np.int32)[self.track]
        return rows

    @cached_property
    def slices(self) -> Array:
        """Complete slices with a usable time, by track and start, the longer first."""
        chosen = self.of_phase("X")
        chosen = chosen[(self.start[chosen] != NO_TIME) & (self.length[chosen] >= 0)]
        ends = self.start[chosen] + self.length[chosen]
        ordered: Array = chosen[np.lexsort((-ends, self.start[chosen], self.row[chosen]))]
        return ordered

    @cached_property
    def begins(self) -> Begins:
        """Begins and ends of each track, the last that is open closed first."""
        chosen = self.of_phase("BE")
        chosen = chosen[self.start[chosen] != NO_TIME]
        order = chosen[np.lexsort((chosen, self.start[chosen]))]
        is_begin = (self.phase[order] == ord("B")).tolist()
        waiting: dict[int, list[int]] = defaultdict(list)
        pairs, stray = [], []
        for event, row, begin in zip(order.tolist(), self.row[order].tolist(), is_begin, strict=True):
            if begin:
                waiting[row].append(event)
            elif waiting[row]:
                pairs.append((waiting[row].pop(), event))
            else:
                stray.append(event)
        unclosed = sorted((each for stack in waiting.values() for each in stack), key=self.start.__getitem__)
        table = np.array(pairs or np.empty((0, 2)), np.int64)
        return Begins(table[:, 0], table[:, 1], unclosed, stray)

    @cached_property
    def nesting(self) -> Nesting:
        """All slices that have a start and an end."""
        found = self.begins
        events = np.concatenate((self.slices, found.begins))
        starts = self.start[events]
        ends = np.concatenate((self.start[self.slices] + self.length[self.slices], self.start[found.ends]))
        rows = self.row[events]
        order = np.lexsort((-ends, starts, rows))
        return Nesting(events[order], rows[order], starts[order], ends[order])

    @cached_property
    def timed(self) -> Array:
        """Events with a usable time, in the order of the file."""
        return np.flatnonzero(self.start != NO_TIME)

    def name_of(self, event: int) -> str:
        """The name of an event, in quotation marks."""
        number = int(self.name[event])
        if number >= len(self.texts):
            return _NAMELESS
        try:
            value = msgspec.json.decode(self.texts[number] or b'""')
        except (msgspec.DecodeError, UnicodeDecodeError):
            value = self.texts[number].decode("utf-8", "replace")
        text = str(value)
        return f'"{text}"' if len(text) <= _LONGEST else f'"{text[: _LONGEST - 1]}…"'

    def place_of(self, event: int) -> str:
        """The track of an event."""
        pid, tid = self.tracks[int(self.track[event])]
        return f"pid {spell(pid)} tid {spell(tid)}"

    def describe(self, event: int) -> str:
        """An event: its name, when it is, where."""
        start = int(self.start[event])
        when = "without a time" if start == NO_TIME else f"at {ns_to_decimal_us(start)} us"
        return f"{self.name_of(event)} {when} on {self.place_of(event)}"

    def span(self, event: int) -> str:
        """A slice: its name and when it is."""
        start, length = int(self.start[event]), int(self.length[event])
        return f"{self.name_of(event)} {ns_to_decimal_us(start)}..{ns_to_decimal_us(start + length)} us"


def spell(value: Hashable) -> str:
    """A pid or tid as it stands in the file."""
    if value is UNSET or value is None:
        return "(none)"
    return f'"{value}"' if isinstance(value, str) else str(value)


def count_by(numbers: Array) -> Counter[int]:
    """How often each number is there."""
    values, counts = np.unique(numbers, return_counts=True)
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))
