"""What the first reading of a trace keeps of its events: columns of numbers, no text."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import UNSET

from slime_profiler_plugin.read import TraceEvent

from ._exact_times import parse_times
from ._flow_columns import FlowNotes, Numbers
from ._kinds import ASYNC, END, SHORT, SHOWN_OLD_ASYNC, SLICE, Bools, Ints, Kinds, kinds_of

#: What is kept of every event: kind, start, length, whether it is timed and has a length, track.
_GROWING: Final = (np.uint8, np.int64, np.int64, np.bool_, np.bool_, SHORT)


class AsyncColumns(NamedTuple):
    """Async events: the number of the event, and the number of its track (`async_key`)."""

    events: Ints
    keys: Ints


class Columns:
    """The events of one trace as numbers, in the order of the file.

    `track_key` gives what a (pid, tid) as it stands in the file is. After `close`, by event: `kinds`,
    `starts` and `lengths` (ns of the file's own clock), `is_timed`, `has_length`, `tracks` (index into
    `track_keys`).
    """

    def __init__(self, track_key: Callable[[tuple[Any, Any]], Hashable]) -> None:
        self.count = 0
        self._tracks = Numbers(track_key)
        self._flow_notes = FlowNotes()
        self._async_keys = Numbers(lambda key: key)
        #: The columns as they grow, in the order of `_GROWING`; each is one block, so that no copies pile up.
        self._growing = [bytearray() for _ in _GROWING]
        self._asyncs: list[tuple[Ints, Ints]] = []
        #: By event of an end, its args.
        self.end_args: dict[int, bytes] = {}
        #: Events whose phase has several letters.
        self.odd_phases: list[int] = []
        self.has_plain_lengths = True

    def add(self, piece: list[TraceEvent]) -> Kinds:
        """Take in the next events; gives their kinds."""
        phases = [event.ph for event in piece]
        kinds = kinds_of(phases)
        if max(map(len, phases)) > 1:
            self.odd_phases += [self.count + i for i, phase in enumerate(phases) if len(phase) > 1]
        starts, is_timed, _ = parse_times([event.ts for event in piece])
        lengths, has_length = self._slice_lengths(piece, kinds)
        places = zip([event.pid for event in piece], [event.tid for event in piece], strict=True)
        tracks = np.array(list(map(self._tracks.__getitem__, places)), dtype=SHORT)
        new: tuple[Any, ...] = (kinds, starts, lengths, is_timed, has_length, tracks)
        for column, part in zip(self._growing, new, strict=True):
            column.extend(part.tobytes())
        self._flow_notes.add(piece, kinds, self.count)
        self._note_asyncs(piece, kinds)
        for index in np.flatnonzero(kinds == END).tolist():
            args = piece[index].args
            if args is not UNSET:
                self.end_args[self.count + index] = bytes(args)
        self.count += len(piece)
        return kinds

    def _slice_lengths(self, piece: list[TraceEvent], kinds: Kinds) -> tuple[Ints, Bools]:
        """Of slices; of all others the lengths mean nothing."""
        slices = np.flatnonzero(kinds == SLICE)
        own, are_known, are_plain = parse_times([piece[index].dur for index in slices.tolist()])
        self.has_plain_lengths &= are_plain
        lengths, has_length = np.zeros(len(piece), np.int64), np.zeros(len(piece), np.bool_)
        lengths[slices], has_length[slices] = own, are_known
        return lengths, has_length

    def _note_asyncs(self, piece: list[TraceEvent], kinds: Kinds) -> None:
        asyncs = np.flatnonzero((kinds >= ASYNC) & (kinds <= SHOWN_OLD_ASYNC))
        if len(asyncs):
            number = self._async_keys.__getitem__
            keys = [number(async_key(piece[index])) for index in asyncs.tolist()]
            self._asyncs.append((asyncs + self.count, np.array(keys, dtype=np.int64)))

    def close(self) -> None:
        """All events are in."""
        columns: list[Any] = [
            np.frombuffer(column, kind) if column else np.zeros(0, kind)
            for column, kind in zip(self._growing, _GROWING, strict=True)
        ]
        self.kinds: Kinds = columns[0]
        self.starts: Ints = columns[1]
        self.lengths: Ints = columns[2]
        self.is_timed: Bools = columns[3]
        self.has_length: Bools = columns[4]
        self.tracks: Ints = columns[5]
        del self._growing
        self.flows = self._flow_notes.close()
        none = [np.zeros(0, np.int64)]
        events, keys = zip(*self._asyncs, strict=True) if self._asyncs else (none, none)
        self.asyncs = AsyncColumns(np.concatenate(events), np.concatenate(keys))

    def release_times(self) -> None:
        """They are in use no more."""
        self.starts = self.lengths = np.zeros(0, np.int64)
        self.is_timed = self.has_length = np.zeros(0, np.bool_)

    def flow_name(self, number: int) -> bytes:
        """The name, as it stands in the file, that `flows.names` gives the number of."""
        return self._flow_notes.name(number)

    @property
    def track_keys(self) -> list[Any]:
        """What each track is in the file."""
        return self._tracks.keys_in_order


def _category(event: TraceEvent) -> bytes:
    return b"" if event.cat is UNSET else bytes(event.cat)


def async_key(event: TraceEvent) -> Hashable:
    """Equal for events of one async track: category, scope and id; a local id is local to its process.

    What has no id is by itself on its thread.
    """
    more = event.more if event.more is not UNSET else {}
    id2 = more.get("id2")
    owner = str(event.pid) if isinstance(id2, dict) and "local" in id2 else None
    value = id2 if event.id is UNSET and id2 is not None else more.get("id")
    if event.id is UNSET and value is None:
        return _category(event), (str(event.pid), str(event.tid)), None
    found = str(event.id) if event.id is not UNSET else _spell_id(value)
    return _category(event), owner, str(more.get("scope", "")), found


def _spell_id(value: object) -> str:
    if isinstance(value, dict) and len(value) == 1:
        return str(next(iter(value.values())))
    return str(value)
