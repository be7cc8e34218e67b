"""What the first reading of a trace keeps of its events: columns of numbers, no text."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import UNSET, Raw, UnsetType

from slime_profiler_plugin.clock import decimal_us_to_ns
from slime_profiler_plugin.read import TraceEvent

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Kinds = npt.NDArray[np.uint8]
#: What numbers of tracks, lanes and rows fit; half of `Ints`, which it is used as.
SHORT: Any = np.int32

#: Kinds of events.
NO_PHASE, SLICE, BEGIN, END, FLOW_START, FLOW_STEP, FLOW_END = range(7)
#: Asynchronous ones, of the new form and the old; begins and steps are shown, ends show by them.
ASYNC, SHOWN_ASYNC, OLD_ASYNC, SHOWN_OLD_ASYNC = range(7, 11)
METADATA, COUNTER, INSTANT, OTHER = range(11, 15)


class _KindOf(dict[str, int]):
    """The kind of event that a phase letter means; of several letters the first counts, as for Perfetto.

    `met_several` is set when there were several.
    """

    met_several = False

    def __missing__(self, letters: str) -> int:
        if not letters:
            return NO_PHASE
        self.met_several |= len(letters) > 1
        return self.get(letters[0], OTHER)


_KIND_OF: Final = _KindOf(
    {
        "X": SLICE,
        "B": BEGIN,
        "E": END,
        "s": FLOW_START,
        "t": FLOW_STEP,
        "f": FLOW_END,
        "M": METADATA,
        "C": COUNTER,
        **dict.fromkeys("iIR", INSTANT),
        **dict.fromkeys("eNOD", ASYNC),
        **dict.fromkeys("bn", SHOWN_ASYNC),
        "F": OLD_ASYNC,
        **dict.fromkeys("STp", SHOWN_OLD_ASYNC),
    }
)
#: Flow ids below this and fewer categories than that make one number.
_SMALL_ID: Final = 2**44
_FEW_CATEGORIES: Final = 2**16
_ENCLOSING: Final = b'"e"'
#: What is kept of every event: kind, start, length, whether it is timed and has a length, track.
_GROWING: Final = (np.uint8, np.int64, np.int64, np.bool_, np.bool_, SHORT)
_COMMA, _DOT, _MINUS = b",.-"
#: Numbers of as many characters, dot and sign included, fit 64 bits whatever they are multiplied by here.
_MOST_CHARACTERS: Final = 17
#: As many digits without a dot do not, when they become ns.
_TOO_MANY_DIGITS: Final = 16
_SCALES: Final = np.array([1000, 100, 10, 1], dtype=np.int64)


class Times(NamedTuple):
    """Times in ns; which of them are known at all (0 stands for the others); whether all that were given are
    plain numbers of at most three decimals.
    """

    values: Ints
    are_known: Bools
    are_plain: bool


def parse_times(texts: Sequence[Raw | UnsetType]) -> Times:
    """Decimal microseconds to ns, exact; digits below 1 ns are rounded as `clock.decimal_us_to_ns` does.

    >>> times = parse_times([Raw(b"1.5"), UNSET, Raw(b"5115426478563.779"), Raw(b"-2")])
    >>> times.values.tolist(), times.are_known.tolist()
    ([1500, 0, 5115426478563779, -2000], [True, False, True, True])
    """
    are_all_given = list(texts).count(UNSET) == 0
    given = texts if are_all_given else [text for text in texts if text is not UNSET]
    if not given:
        return Times(np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_), are_plain=True)
    values = _parse_plain(b",".join(given), len(given))  # type: ignore[arg-type]
    known = np.ones(len(given), np.bool_)
    are_plain = values is not None
    if values is None:
        parsed = [_parse_one(text) for text in given]
        known = np.array([value is not None for value in parsed])
        values = np.array([value or 0 for value in parsed], dtype=np.int64)
    if are_all_given:
        return Times(values, known, are_plain)
    places = np.array([index for index, text in enumerate(texts) if text is not UNSET])
    all_values, all_known = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    all_values[places], all_known[places] = values, known
    return Times(all_values, all_known, are_plain)


def _parse_plain(text: bytes, count: int) -> Ints | None:
    """Numbers of at most three decimals, joined by commas; ``None`` where any is of another form.

    Without its dot each is a whole number, to be scaled by as many digits as it lacks of three.
    """
    if text.translate(None, b"0123456789,.-"):
        return None
    marks = np.frombuffer(text + b",", np.uint8)
    ends = np.flatnonzero(marks == _COMMA)
    dots = np.flatnonzero(marks == _DOT)
    lengths = np.diff(ends, prepend=-1) - 1
    if len(ends) != count or int(lengths.min()) < 1 or int(lengths.max()) > _MOST_CHARACTERS:
        return None
    starts = ends - lengths
    if b"-" in text and not np.isin(np.flatnonzero(marks == _MINUS), starts).all():
        return None
    decimals = np.zeros(count, np.int64)
    if len(dots) == count and bool((ends - dots == 4).all()):  # as torch.profiler writes them
        decimals[:] = 3
    elif len(dots):
        owners = np.searchsorted(ends, dots)
        decimals[owners] = ends[owners] - dots - 1
        if int(decimals[owners].min()) < 1 or int(decimals.max()) > 3:
            return None
        if not (owners[:-1] < owners[1:]).all():
            return None
    if int(lengths[decimals == 0].max(initial=0)) >= _TOO_MANY_DIGITS:
        return None
    try:
        whole = np.fromstring(text.replace(b".", b""), np.int64, sep=",")
    except ValueError:
        return None
    if len(whole) != count:
        return None
    scaled: Ints = whole * _SCALES[decimals]
    return scaled


def _parse_one(text: Raw | UnsetType) -> int | None:
    try:
        value = decimal_us_to_ns(bytes(text).strip(b'"'))  # type: ignore[arg-type]
    except ValueError:
        return None
    return value if abs(value) < 2**63 else None


class _Numbers(dict[Any, int]):
    """A number for each key, given out as they come; `plain` says which keys are one."""

    def __init__(self, plain: Callable[[Any], Hashable]) -> None:
        self.keys_in_order: list[Any] = []
        self._plain = plain
        self._numbers: dict[Hashable, int] = {}

    def __missing__(self, key: Any) -> int:
        plain = self._plain(key)
        number = self._numbers.setdefault(plain, len(self._numbers))
        if number == len(self.keys_in_order):
            self.keys_in_order.append(plain)
        self[key] = number
        return number


class FlowColumns(NamedTuple):
    """What stands at the ends of arrows: the number of the event, of its (category, id) and of its name.

    `kinds` are `FLOW_START`, `FLOW_STEP` and `FLOW_END`, also of slices that say so themselves (``bind_id``,
    `is_slice`). `binds_next`: it belongs to the next slice that begins, not to the one it lies in.
    """

    events: Ints
    keys: Ints
    kinds: Kinds
    names: Ints
    binds_next: Bools
    is_slice: Bools


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
        self._tracks = _Numbers(track_key)
        #: Category and name of flow events.
        self._flow_words = _Numbers(lambda key: key)
        self._flow_ids = _Numbers(lambda key: key)
        self._async_keys = _Numbers(lambda key: key)
        #: The columns as they grow, in the order of `_GROWING`; each is one block, so that no copies pile up.
        self._growing = [bytearray() for _ in _GROWING]
        self._flows: list[FlowColumns] = []
        self._flow_keys: list[tuple[Ints, Ints]] = []
        self._asyncs: list[tuple[Ints, Ints]] = []
        #: By event of an end, its args.
        self.end_args: dict[int, bytes] = {}
        #: Events whose phase has several letters.
        self.odd_phases: list[int] = []
        self.has_plain_lengths = True

    def add(self, piece: list[TraceEvent]) -> Kinds:
        """Take in the next events; gives their kinds."""
        kinds = np.frombuffer(bytes([_KIND_OF[event.ph] for event in piece]), np.uint8)
        if _KIND_OF.met_several:
            _KIND_OF.met_several = False
            self.odd_phases += [self.count + i for i, event in enumerate(piece) if len(event.ph) > 1]
        starts, is_timed, _ = parse_times([event.ts for event in piece])
        lengths, has_length = self._slice_lengths(piece, kinds)
        places = zip([event.pid for event in piece], [event.tid for event in piece], strict=True)
        tracks = np.array(list(map(self._tracks.__getitem__, places)), dtype=SHORT)
        new = (kinds, starts, lengths, is_timed, has_length, tracks)
        for column, part in zip(self._growing, new, strict=True):
            column.extend(part.tobytes())
        self._note_ids(piece, kinds)
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

    def _note_ids(self, piece: list[TraceEvent], kinds: Kinds) -> None:
        flows = np.flatnonzero((kinds >= FLOW_START) & (kinds <= FLOW_END))
        if len(flows):
            chosen = [piece[index] for index in flows.tolist()]
            words = self._flow_words.__getitem__
            pairs = [words((bytes(event.cat or b""), bytes(event.name or b""))) for event in chosen]
            ids, binds_next = self._plain_ids(chosen), _bind_next(chosen)
            self._add_flows(flows + self.count, np.array(pairs), ids, kinds[flows], binds_next)
        self._note_binds(piece)
        asyncs = np.flatnonzero((kinds >= ASYNC) & (kinds <= SHOWN_OLD_ASYNC))
        if len(asyncs):
            number = self._async_keys.__getitem__
            keys = [number(async_key(piece[index])) for index in asyncs.tolist()]
            self._asyncs.append((asyncs + self.count, np.array(keys, dtype=np.int64)))

    def _note_binds(self, piece: list[TraceEvent]) -> None:
        """Slices that are ends of arrows without flow events."""
        beside = [event.more for event in piece]
        if beside.count(UNSET) == len(beside):
            return
        marked = [
            (index, more)
            for index, more in enumerate(beside)
            if more is not UNSET and piece[index].ph in ("X", "B") and flow_kind(more) is not None
        ]
        if marked:
            self._add_flows(
                np.array([self.count + index for index, _ in marked]),
                np.full(len(marked), self._flow_words[None, b""]),
                np.array([-1 - self._flow_ids[str(more["bind_id"])] for _, more in marked]),
                np.array([flow_kind(more) for _, more in marked], np.uint8),
                np.zeros(len(marked), np.bool_),
                are_slices=True,
            )

    def _add_flows(
        self,
        events: Ints,
        words: Ints,
        ids: Ints,
        kinds: Kinds,
        binds_next: Bools,
        *,
        are_slices: bool = False,
    ) -> None:
        self._flow_keys.append((words, ids))
        none = np.zeros(0, np.int64)
        self._flows.append(
            FlowColumns(events, none, kinds, none, binds_next, np.full(len(events), are_slices))
        )

    def _plain_ids(self, events: list[TraceEvent]) -> Ints:
        """The ids of flow events; one that is no number of an ordinary size gets a negative one."""
        ids = [event.id for event in events]
        if set(map(type, ids)) == {int}:
            try:
                plain = np.array(ids, dtype=np.int64)
            except OverflowError:
                pass
            else:
                if int(plain.min()) >= 0:
                    return plain
        return np.array([self._plain_id(event) for event in events], dtype=np.int64)

    def _plain_id(self, event: TraceEvent) -> int:
        found = event.id
        if type(found) is int and 0 <= found < 2**63:
            return found
        if found is UNSET:
            found = str(event.more.get("id2", event.more.get("id"))) if event.more is not UNSET else ""
        text = str(found)
        if text.isascii() and text.isdigit() and len(text) <= _MOST_CHARACTERS:
            return int(text)
        return -1 - self._flow_ids[text]

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
        self.flows = self._join_flows()
        none = [np.zeros(0, np.int64)]
        events, keys = zip(*self._asyncs, strict=True) if self._asyncs else (none, none)
        self.asyncs = AsyncColumns(np.concatenate(events), np.concatenate(keys))

    def release_times(self) -> None:
        """They are in use no more."""
        self.starts = self.lengths = np.zeros(0, np.int64)
        self.is_timed = self.has_length = np.zeros(0, np.bool_)

    def _join_flows(self) -> FlowColumns:
        if not self._flows:
            none = np.zeros(0, np.int64)
            return FlowColumns(none, none, *(none.astype(kind) for kind in (np.uint8, np.int32, bool, bool)))
        joined = FlowColumns(*(np.concatenate(column) for column in zip(*self._flows, strict=True)))
        words, ids = (np.concatenate(column) for column in zip(*self._flow_keys, strict=True))
        categories, names = _Numbers(lambda key: key), _Numbers(lambda key: key)
        numbers = np.array([(categories[c], names[n]) for c, n in self._flow_words.keys_in_order])[words]
        self._flow_names: list[bytes] = names.keys_in_order
        return joined._replace(keys=_join_keys(numbers[:, 0], ids), names=numbers[:, 1])

    def flow_name(self, number: int) -> bytes:
        """The name, as it stands in the file, that `flows.names` gives the number of."""
        return self._flow_names[number]

    @property
    def track_keys(self) -> list[Any]:
        """What each track is in the file."""
        return self._tracks.keys_in_order


def _join_keys(categories: Ints, ids: Ints) -> Ints:
    """One number for each (category, id)."""
    lowest, highest = int(ids.min()), int(ids.max())
    if lowest >= 0 and highest < _SMALL_ID and int(categories.max()) < _FEW_CATEGORIES:
        return categories * _SMALL_ID + ids
    both = np.stack((categories, ids), axis=1)
    return np.unique(both, axis=0, return_inverse=True)[1].reshape(-1)


def flow_kind(more: dict[str, Any]) -> int | None:
    """Which end of an arrow a slice says that it is: ``bind_id`` with ``flow_out``, ``flow_in`` or both.

    >>> flow_kind({"bind_id": 7, "flow_out": True}) == FLOW_START, flow_kind({"bind_id": 7})
    (True, None)
    """
    if more.get("bind_id") is None:
        return None
    leaves, arrives = bool(more.get("flow_out")), bool(more.get("flow_in"))
    return {(True, False): FLOW_START, (True, True): FLOW_STEP, (False, True): FLOW_END}.get(
        (leaves, arrives)
    )


def _category(event: TraceEvent) -> bytes:
    return b"" if event.cat is UNSET else bytes(event.cat)


def _bind_next(flows: list[TraceEvent]) -> Bools:
    """Which are ends that belong to the next slice that begins: those that do not say ``"bp": "e"``."""
    points = [event.bp for event in flows if event.ph[0] == "f"]
    if points.count(UNSET) == 0 and b"".join(points) == _ENCLOSING * len(points):  # type: ignore[arg-type]
        return np.zeros(len(flows), np.bool_)
    return np.array([event.ph[0] == "f" and bytes(event.bp or b"") != _ENCLOSING for event in flows])


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
