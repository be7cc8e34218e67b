"""One pass over a file: a few numbers per event, in flat arrays, for all rules.

An event takes 29 bytes, an arrow's end 13 more, a launch or kernel 16.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from slime_profiler_plugin.clock import decimal_us_to_ns
from slime_profiler_plugin.read import Damage, ReadError, TraceEvent, TraceRefusedError, read_blocks
from slime_profiler_plugin.read.traces import TraceFile, open_trace, read_pieces

from ._text import TextSurvey

#: In place of a time or duration that is not there, or is no number.
NO_TIME: Final = -(2**63)
#: Beyond this a viewer's 64-bit nanoseconds overflow when two are added.
_LATEST_NS: Final = 2**62
#: Phase letters that viewers know.
LETTERS: Final = "BEXIiCbneSTFpstfPNODMVvRcr(){}="
_NO_LETTER: Final = 0
_OTHER_LETTER: Final = 255
#: Whole microseconds of fewer digits need no closer look.
_SHORT: Final = 16
_ZIP: Final = b"PK\x03\x04"
#: Names are kept as numbers; of a file with more different ones, the further are not known.
_MOST_NAMES: Final = 200_000
_NAMELESS: Final = "(name not kept)"

LAUNCHES: Final = frozenset({"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "xpu_runtime"})
KERNELS: Final = frozenset({"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"})
_CORRELATION: Final = re.compile(rb'"correlation"\s*:\s*(\d{1,18})')
_NUMBER: Final = re.compile(r"-?\d{1,18}")

#: What is wrong with an id; 0: nothing.
FINE, STRING_ID, FLOAT_ID, LARGE_ID, NO_ID = range(5)
_LARGEST_ID: Final = 2**63 - 1
_HASH_RANGE: Final = 2**64

Array = NDArray[Any]


class _Numbers(dict[Hashable, int]):
    """The number of each thing that is looked up, in order of appearance; at most `most` different ones."""

    def __init__(self, most: int = 2**31 - 2) -> None:
        super().__init__()
        self.most = most

    def __missing__(self, key: Hashable) -> int:
        number = len(self)
        if number < self.most:
            self[key] = number
        return number


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
    negative: int = 0
    spelled: set[Hashable] = field(default_factory=set)


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
        self.unusable_pids = 0
        self._texts: list[bytes] = []

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
        for name in _COLUMNS:
            setattr(self, name, getattr(self, name)[:0])
        for name in ("row", "slices", "timed"):
            self.__dict__.pop(name, None)
        self._texts = []

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
        canonical = _Numbers()
        numbers = [canonical[plain(pid), plain(tid)] for pid, tid in self.tracks]
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
    def timed(self) -> Array:
        """Events with a usable time, in the order of the file."""
        return np.flatnonzero(self.start != NO_TIME)

    def name_of(self, event: int) -> str:
        """The name of an event, in quotation marks."""
        number = int(self.name[event])
        if number >= len(self._texts):
            return _NAMELESS
        try:
            value = msgspec.json.decode(self._texts[number] or b'""')
        except (msgspec.DecodeError, UnicodeDecodeError):
            value = self._texts[number].decode("utf-8", "replace")
        return f'"{value}"'

    def place_of(self, event: int) -> str:
        """The track of an event."""
        pid, tid = self.tracks[int(self.track[event])]
        return f"pid {spell(pid)} tid {spell(tid)}"

    def describe(self, event: int) -> str:
        """An event: its name, when it is, where."""
        start = int(self.start[event])
        when = "without a time" if start == NO_TIME else f"at {us(start)} us"
        return f"{self.name_of(event)} {when} on {self.place_of(event)}"

    def span(self, event: int) -> str:
        """A slice: its name and when it is."""
        start, length = int(self.start[event]), int(self.length[event])
        return f"{self.name_of(event)} {us(start)}..{us(start + length)} us"


@dataclass
class FileSurvey:
    """Everything that the rules look at. `refused`: why the file is no trace; then all else is empty."""

    path: Path
    trace: TraceFile | None = None
    refused: str | None = None
    unreadable: str | None = None
    damage: list[Damage] = field(default_factory=list)
    text: TextSurvey = field(default_factory=TextSurvey)
    events: Events = field(default_factory=Events)
    total: int = 0

    @property
    def base_ns(self) -> int | None:
        """The Unix time that the times are relative to, where the file says it."""
        return None if self.trace is None else self.trace.header.base_ns

    @cached_property
    def clock(self) -> str:
        """``based``, ``absolute`` (Unix time), ``unknown``, or ``none`` where there is no event."""
        if self.base_ns is not None:
            return "based"
        starts = self.events.start[self.events.timed]
        starts = starts[starts > 0]
        if not len(starts):
            return "none"
        return "absolute" if np.median(starts) >= _LONG_AGO_NS else "unknown"


#: 2001: Unix times are later, and times since a start of a machine or program are less.
_LONG_AGO_NS: Final = 10**18


def survey_file(path: Path) -> FileSurvey:
    """Read a file once for its text and once for its events."""
    survey = FileSurvey(path)
    try:
        survey.trace = open_trace(path)
        collected = _Collector(survey.events)
        for piece in read_pieces(survey.trace, survey.damage):
            survey.total += len(piece)
            collected.add(piece)
        collected.finish()
        if survey.trace.format != "nsys":
            _read_text(survey)
    except TraceRefusedError as error:
        survey.refused = _without_path(error, path)
    except ReadError as error:
        survey.unreadable = _without_path(error, path)
    return survey


def _read_text(survey: FileSurvey) -> None:
    blocks = read_blocks(survey.path, [])
    first = next(iter(blocks), b"")
    if not first.startswith(_ZIP):
        survey.text.add(_chain(first, blocks))


def _chain(first: bytes, rest: Iterable[bytes]) -> Iterable[bytes]:
    yield first
    yield from rest


def _without_path(error: Exception, path: Path) -> str:
    return str(error).removeprefix(f"{path}: ")


class _Collector:
    """Fills `events` from the pieces of a file."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._columns: dict[str, list[Array]] = {name: [] for name in _COLUMNS}
        self._flows = _IdColumns()
        self._asyncs = _IdColumns()
        self._links: list[tuple[int, int]] = []
        self._linked: list[Array] = []
        self._tracks = _Numbers()
        self._names = _Numbers(_MOST_NAMES)
        self._categories = _Numbers()
        self._hashes: list[int] = []
        self._wanted: list[bool] = []
        self._count = 0

    def add(self, piece: list[TraceEvent]) -> None:
        """Take in some events."""
        for event in piece:
            if event.ph == "M":
                self._note_metadata(event)
        piece = [event for event in piece if event.ph != "M"]
        if not piece:
            return
        phases = np.frombuffer(bytes([_CODES.get(event.ph, _OTHER_LETTER) for event in piece]), np.uint8)
        tracks, names, categories = self._tracks, self._names, self._categories
        category = np.array([categories[_raw(event.cat)] for event in piece], np.int32)
        columns = self._columns
        columns["phase"].append(phases)
        columns["track"].append(np.array([tracks[event.pid, event.tid] for event in piece], np.int32))
        columns["start"].append(np.array([self._ns(event.ts) for event in piece], np.int64))
        columns["length"].append(np.array([self._ns(event.dur) for event in piece], np.int64))
        columns["name"].append(np.array([names[_raw(event.name)] for event in piece], np.int32))
        columns["category"].append(category)
        self._learn_categories()
        for index in np.flatnonzero(_IS_FLOW[phases]).tolist():
            self._flows.add(self._count + index, self._hashes[category[index]], piece[index])
        for index in np.flatnonzero(_IS_ASYNC[phases]).tolist():
            self._asyncs.add(self._count + index, self._hashes[category[index]], piece[index])
        self._find_correlations(piece, category)
        self._events.unusable_pids += sum(
            event.more is not UNSET and ("pid" in event.more or "tid" in event.more) for event in piece
        )
        self._count += len(piece)

    def finish(self) -> None:
        """All events have been added."""
        events = self._events
        for name, parts in self._columns.items():
            if parts:
                setattr(events, name, np.concatenate(parts))
        events.flows = self._flows.finish()
        events.asyncs = self._asyncs.finish()
        links = np.concatenate(self._linked) if self._linked else np.empty((0, 2), np.int64)
        events.linked, events.correlation = links[:, 0], links[:, 1]
        events.tracks = list(self._tracks)  # type: ignore[arg-type]
        events.categories = [_text_of(name) for name in self._categories]  # type: ignore[arg-type]
        events._texts = list(self._names)  # type: ignore[arg-type]

    def _learn_categories(self) -> None:
        for name in list(self._categories)[len(self._hashes) :]:
            self._hashes.append(hash(name))
            self._wanted.append(_text_of(name) in _LINKED)  # type: ignore[arg-type]

    def _find_correlations(self, piece: list[TraceEvent], category: Array) -> None:
        chosen = np.flatnonzero(np.array(self._wanted)[category])
        if not len(chosen):
            return
        found = [_CORRELATION.search(_raw(piece[index].args)) for index in chosen.tolist()]
        values = np.array([int(match[1]) if match else 0 for match in found], np.int64)
        kept = values != 0
        self._linked.append(np.column_stack((chosen[kept] + self._count, values[kept])))

    def _ns(self, raw: Any) -> int:
        if raw is UNSET:
            return NO_TIME
        text = bytes(raw)
        if text.isdigit() and len(text) < _SHORT:
            return int(text) * 1000
        try:
            value = decimal_us_to_ns(text)
        except ValueError:
            if not text.startswith(b'"'):
                return NO_TIME
            self._events.string_times += 1
            try:
                value = decimal_us_to_ns(text.strip(b'"'))
            except ValueError:
                return NO_TIME
        return value if -_LATEST_NS < value < _LATEST_NS else NO_TIME

    def _note_metadata(self, event: TraceEvent) -> None:
        names = self._events.names
        if event.ts is not UNSET and bytes(event.ts).lstrip(b'"').startswith(b"-"):
            names.negative += 1
        names.spelled.add(event.pid)
        kind = _raw(event.name)
        if kind not in (b'"process_name"', b'"thread_name"') or event.args is UNSET:
            return
        try:
            name = msgspec.json.decode(event.args)["name"]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            return
        process = plain(event.pid)
        known = (
            names.processes.setdefault(process, [])
            if kind == b'"process_name"'
            else names.threads.setdefault((process, plain(event.tid)), [])
        )
        if str(name) not in known:
            known.append(str(name))


class _IdColumns:
    """Collects events with ids."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []
        self._parts: list[Array] = []

    def add(self, index: int, category: int, event: TraceEvent) -> None:
        """Take in one event, `index` of its file; `category` is a hash."""
        value: object = event.id
        more = event.more if event.more is not UNSET else {}
        owner: object = None
        if value is UNSET:
            value = more.get("id2", more.get("id", UNSET))
            if isinstance(value, dict):
                owner = plain(event.pid) if "local" in value else None
                value = value.get("local", value.get("global", UNSET))
        key, problem = _id_key(value)
        if "id2" in more and problem != NO_ID:
            problem = STRING_ID
        if owner is not None:
            key = hash((key, owner))
        mixed = (key * 0x9E3779B97F4A7C15 + category) % _HASH_RANGE
        encloses = event.ph != "f" or _raw(event.bp) == b'"e"'
        self._rows.append((index, mixed - _HASH_RANGE // 2, problem, encloses))
        if len(self._rows) >= _BATCH:
            self._pack()

    def finish(self) -> Ids:
        """All of them."""
        self._pack()
        table = np.concatenate(self._parts) if self._parts else np.empty((0, 4), np.int64)
        return Ids(
            table[:, 0].copy(), table[:, 1].copy(), table[:, 2].astype(np.uint8), table[:, 3].astype(bool)
        )

    def _pack(self) -> None:
        if self._rows:
            self._parts.append(np.array(self._rows, np.int64))
            self._rows = []


_BATCH: Final = 50_000


def _id_key(value: object) -> tuple[int, int]:
    """A number for an id, and what is wrong with it."""
    if value is UNSET or value is None:
        return 0, NO_ID
    if isinstance(value, int) and not isinstance(value, bool):
        return value, FINE if 0 <= value <= _LARGEST_ID else LARGE_ID
    if isinstance(value, str):
        return int(value) if _NUMBER.fullmatch(value) else hash(value), STRING_ID
    return hash(str(value)), FLOAT_ID


def plain(value: Hashable) -> Hashable:
    """A pid or tid, the same for ``"7"`` and 7; ``None`` where there is none."""
    if value is UNSET:
        return None
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def spell(value: Hashable) -> str:
    """A pid or tid as it stands in the file."""
    if value is UNSET or value is None:
        return "(none)"
    return f'"{value}"' if isinstance(value, str) else str(value)


def us(ns: int) -> str:
    """Nanoseconds as microseconds, exactly.

    >>> us(6776), us(-1500)
    ('6.776', '-1.500')
    """
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def count_by(numbers: Array) -> Counter[int]:
    """How often each number is there."""
    values, counts = np.unique(numbers, return_counts=True)
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _raw(value: Any) -> bytes:
    return b"" if value is UNSET else bytes(value)


def _text_of(raw: bytes) -> str:
    return raw.strip(b'"').decode("utf-8", "replace")


_COLUMNS: Final = ("phase", "track", "start", "length", "name", "category")
_LINKED: Final = LAUNCHES | KERNELS
_CODES: Final = {"": _NO_LETTER, **{letter: ord(letter) for letter in LETTERS}}
_IS_FLOW: Final = np.isin(np.arange(256), [ord(letter) for letter in "stf"])
_IS_ASYNC: Final = np.isin(np.arange(256), [ord(letter) for letter in "bneSTFp"])
