"""From pieces of decoded events to flat arrays."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import UNSET

from slime_profiler_plugin.merge import parse_times
from slime_profiler_plugin.read import KERNEL_CATEGORIES, TraceEvent, device_of_label, plain_id

from ._events import (
    COLUMNS,
    FINE,
    LARGE_ID,
    NO_ID,
    NO_INTEGER,
    NO_TIME,
    Array,
    Events,
    Ids,
)

#: Beyond this a viewer's 64-bit nanoseconds overflow when two are added.
_LATEST_NS: Final = 2**62
#: Phase letters that viewers know.
_LETTERS: Final = "BEXIiCbneSTFpstfPNODMVvRcr(){}="
_OTHER_LETTER: Final = 255
#: Names are kept as numbers; of a file with more different ones, the further are not known.
_MOST_NAMES: Final = 200_000

LAUNCHES: Final = frozenset({"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "xpu_runtime"})
_LINKED: Final = LAUNCHES | KERNEL_CATEGORIES
_CORRELATION: Final = re.compile(rb'"correlation"\s*:\s*(\d{1,18})')
#: What surely fits into 64 bits.
_NUMBER: Final = re.compile(r"-?\d{1,18}")
_LARGEST_ID: Final = 2**63 - 1
_HASH_RANGE: Final = 2**64
_BATCH: Final = 50_000


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


class Collector:
    """Fills `events` from the pieces of a file."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._columns: dict[str, list[Array]] = {name: [] for name in COLUMNS}
        self._flows = _IdColumns()
        self._asyncs = _IdColumns()
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
        columns["start"].append(self._parse([event.ts for event in piece]))
        lengths = self._parse([event.dur if event.ph == "X" else UNSET for event in piece])
        columns["length"].append(lengths)
        columns["name"].append(np.array([names[_raw(event.name)] for event in piece], np.int32))
        columns["category"].append(category)
        self._learn_categories()
        for index in np.flatnonzero(_IS_FLOW[phases]).tolist():
            self._flows.add(self._count + index, self._hashes[category[index]], piece[index])
        for index in np.flatnonzero(_IS_ASYNC[phases]).tolist():
            self._asyncs.add(self._count + index, self._hashes[category[index]], piece[index])
        self._find_correlations(piece, category)
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
        events.texts = list(self._names)  # type: ignore[arg-type]

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

    def _parse(self, texts: list[Any]) -> Array:
        """Times in ns; strings are counted."""
        times = parse_times(texts)
        if not times.are_plain:
            self._events.string_times += sum(text is not UNSET and bytes(text)[:1] == b'"' for text in texts)
        usable = times.are_known & (np.abs(times.values) < _LATEST_NS)
        return np.where(usable, times.values, NO_TIME)

    def _note_metadata(self, event: TraceEvent) -> None:
        names = self._events.names
        if event.ts is not UNSET and bytes(event.ts).lstrip(b'"').startswith(b"-"):
            names.negative += 1
        names.spelled.add(event.pid)
        kind = _raw(event.name)
        key = _METADATA.get(kind)
        if key is None or event.args is UNSET:
            return
        try:
            name = msgspec.json.decode(event.args)[key]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            return
        process = plain_id(event.pid)
        if kind == b'"process_labels"':
            if device_of_label(str(name)) is not None:
                names.devices.add(process)
            return
        known = (
            names.processes.setdefault(process, [])
            if kind == b'"process_name"'
            else names.threads.setdefault((process, plain_id(event.tid)), [])
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
                owner = plain_id(event.pid) if "local" in value else None
                value = value.get("local", value.get("global", UNSET))
        key, problem = _id_key(value)
        if "id2" in more and problem != NO_ID:
            problem = NO_INTEGER
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


def _id_key(value: object) -> tuple[int, int]:
    """A number for an id, and what is wrong with it."""
    if value is UNSET or value is None:
        return 0, NO_ID
    if isinstance(value, int) and not isinstance(value, bool):
        return value, FINE if 0 <= value <= _LARGEST_ID else LARGE_ID
    if isinstance(value, str):
        return int(value) if _NUMBER.fullmatch(value) else hash(value), NO_INTEGER
    return hash(str(value)), NO_INTEGER


def _raw(value: Any) -> bytes:
    return b"" if value is UNSET else bytes(value)


def _text_of(raw: bytes) -> str:
    return raw.strip(b'"').decode("utf-8", "replace")


#: Under which key of their args they say what they say.
_METADATA: Final = {b'"process_name"': "name", b'"thread_name"': "name", b'"process_labels"': "labels"}
_CODES: Final = {"": 0, **{letter: ord(letter) for letter in _LETTERS}}
_IS_FLOW: Final = np.isin(np.arange(256), [ord(letter) for letter in "stf"])
_IS_ASYNC: Final = np.isin(np.arange(256), [ord(letter) for letter in "bneSTFp"])
