"""What stands at the ends of arrows, as numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import UNSET

from slime_profiler_plugin.read import TraceEvent

from ._kinds import FLOW_END, FLOW_START, FLOW_STEP, Bools, Ints, Kinds

#: Flow ids below this and fewer categories than that make one number.
_SMALL_ID: Final = 2**44
_FEW_CATEGORIES: Final = 2**16
_ENCLOSING: Final = b'"e"'
#: As many digits of an id that is spelled as text are a number.
_MOST_DIGITS: Final = 17


class Numbers(dict[Any, int]):
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


class FlowNotes:
    """Takes in the flow events of a trace, piece by piece, and slices that are ends of arrows themselves."""

    def __init__(self) -> None:
        #: Category and name.
        self._words = Numbers(lambda key: key)
        self._ids = Numbers(lambda key: key)
        self._parts: list[FlowColumns] = []
        self._keys: list[tuple[Ints, Ints]] = []
        self._names: list[bytes] = []

    def add(self, piece: list[TraceEvent], kinds: Kinds, first: int) -> None:
        """The next events, of those kinds; `first` is the number of the first."""
        flows = np.flatnonzero((kinds >= FLOW_START) & (kinds <= FLOW_END))
        if len(flows):
            chosen = [piece[index] for index in flows.tolist()]
            ids, binds_next = self._plain_ids(chosen), _bind_next(chosen)
            self._add_flows(flows + first, self._number_words(chosen), ids, kinds[flows], binds_next)
        self._note_binds(piece, first)

    def _number_words(self, flows: list[TraceEvent]) -> Ints:
        """The number of the category and name of each."""
        categories: Any = [event.cat for event in flows]
        names: Any = [event.name for event in flows]
        if UNSET in categories or UNSET in names:
            categories, names = [word or b"" for word in categories], [word or b"" for word in names]
        pairs = zip(map(bytes, categories), map(bytes, names), strict=True)
        return np.array(list(map(self._words.__getitem__, pairs)))

    def _note_binds(self, piece: list[TraceEvent], first: int) -> None:
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
                np.array([first + index for index, _ in marked]),
                np.full(len(marked), self._words[None, b""]),
                np.array([-1 - self._ids[str(more["bind_id"])] for _, more in marked]),
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
        self._keys.append((words, ids))
        none = np.zeros(0, np.int64)
        self._parts.append(
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
        if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
            return int(text)
        return -1 - self._ids[text]

    def close(self) -> FlowColumns:
        """All of them."""
        if not self._parts:
            none = np.zeros(0, np.int64)
            return FlowColumns(none, none, *(none.astype(kind) for kind in (np.uint8, np.int32, bool, bool)))
        joined = FlowColumns(*(np.concatenate(column) for column in zip(*self._parts, strict=True)))
        words, ids = (np.concatenate(column) for column in zip(*self._keys, strict=True))
        categories, names = Numbers(lambda key: key), Numbers(lambda key: key)
        numbers = np.array([(categories[c], names[n]) for c, n in self._words.keys_in_order])[words]
        self._names = names.keys_in_order
        return joined._replace(keys=_join_keys(numbers[:, 0], ids), names=numbers[:, 1])

    def name(self, number: int) -> bytes:
        """The name, as it stands in the file, that `FlowColumns.names` gives the number of."""
        return self._names[number]


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


def _bind_next(flows: list[TraceEvent]) -> Bools:
    """Which are ends that belong to the next slice that begins: those that do not say ``"bp": "e"``."""
    points = [event.bp for event in flows if event.ph[0] == "f"]
    if points.count(UNSET) == 0 and b"".join(points) == _ENCLOSING * len(points):  # type: ignore[arg-type]
        return np.zeros(len(flows), np.bool_)
    return np.array([event.ph[0] == "f" and bytes(event.bp or b"") != _ENCLOSING for event in flows])
