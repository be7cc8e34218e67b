"""What the program gives as names and fields, as JSON can say it.

It may be anything. Values are never printed or converted by their own methods where that could
cost something: `repr` or `int` of a device tensor would synchronise the device from the writer
thread. What JSON cannot say, and what fails when it is looked at, becomes the name of its type.
"""

from __future__ import annotations

import numbers
from itertools import islice
from typing import Any, Final

from ._guard import FAILURE

#: Fields in the attrs of one line, and again items of all lists and dicts in them together.
MOST_ITEMS: Final = 1_000
#: Of the attrs of one line: characters of all texts together, and of one of them.
MOST_CHARACTERS: Final = 20_000
MOST_OF_ONE_TEXT: Final = 5_000
_MOST_OF_A_KEY: Final = 100
#: Of lists and dicts in each other.
DEPTH: Final = 4
#: Longer numbers are costly to say in decimal, and Python may refuse.
_MOST_BITS: Final = 1_024
_CUT: Final = "…"
_PLAIN: Final = frozenset({int, float, bool, type(None)})


class Values:
    """Turns the fields of one line into what JSON can say, and cuts what is too much, saying so."""

    def __init__(self) -> None:
        self._items = MOST_ITEMS
        self._characters = MOST_CHARACTERS

    def attrs(self, fields: list[tuple[str, object]]) -> dict[str, Any]:
        """The attrs with these names and values."""
        said = {_key(name): self._say(value, DEPTH) for name, value in fields[:MOST_ITEMS]}
        if len(fields) > MOST_ITEMS:
            said[_CUT] = f"{len(fields) - MOST_ITEMS} more"
        return said

    def _say(self, value: object, depth: int) -> Any:
        try:
            return self._any(value, depth)
        except FAILURE:  # changed by another thread meanwhile, a proxy of what is gone, …
            return type_name(value)

    def _any(self, value: object, depth: int) -> Any:
        if type(value) in _PLAIN:
            if isinstance(value, int) and not -(2**63) <= value < 2**64:
                return self._text(_decimal(value))
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, numbers.Integral):
            return self._any(int(value), depth)
        if isinstance(value, numbers.Real):
            return float(value)
        if depth and isinstance(value, dict):
            # In one step if it is small: another thread may be changing it.
            items = value.items()
            pairs = list(items) if len(value) <= MOST_ITEMS else islice(items, MOST_ITEMS + 1)
            return self._dict(pairs, len(value), depth - 1)
        if depth and isinstance(value, (list, tuple)):
            return self._list(value, depth - 1)
        return type_name(value)

    def _dict(self, pairs: Any, length: int, depth: int) -> dict[str, Any]:
        said: dict[str, Any] = {}
        for done, (key, value) in enumerate(pairs):
            if not self._items:
                said[_CUT] = f"{length - done} more"
                break
            self._items -= 1
            said[_key(key)] = self._say(value, depth)
        return said

    def _list(self, values: list[object] | tuple[object, ...], depth: int) -> list[Any]:
        said: list[Any] = []
        for done, value in enumerate(values):
            if not self._items:
                said.append(f"{_CUT} {len(values) - done} more")
                break
            self._items -= 1
            said.append(self._say(value, depth))
        return said

    def _text(self, text: str) -> str:
        text = str.__str__(text)
        kept = min(len(text), self._characters, MOST_OF_ONE_TEXT)
        self._characters -= kept
        return _cut(text, kept)


def _key(key: object) -> str:
    return _cut(as_text(key), _MOST_OF_A_KEY)


def _cut(text: str, most: int) -> str:
    return clean(text) if len(text) <= most else f"{clean(text[:most])}{_CUT} {len(text) - most} more"


def as_text(name: object) -> str:
    """The name of a phase or mark, or a key, whatever the program gave, as JSON can say it."""
    try:
        if isinstance(name, str):
            return clean(name)
        if name is None or isinstance(name, bool):
            return str(name)
        if isinstance(name, numbers.Integral):
            return _decimal(int(name))
        return str(float(name)) if isinstance(name, numbers.Real) else type_name(name)
    except FAILURE:  # it only seemed to be one
        return type_name(name)


def clean(text: str) -> str:
    """`text` as UTF-8 can say it: a lone surrogate, as in file names, becomes ``?``."""
    text = str.__str__(text)  # of a subclass, whose own methods may do anything
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def type_name(value: object) -> str:
    """What stands for a value of which nothing else can be said."""
    return clean(f"<{type(value).__qualname__}>")


def _decimal(number: int) -> str:
    return str(number) if number.bit_length() <= _MOST_BITS else f"<int of {number.bit_length()} bits>"
