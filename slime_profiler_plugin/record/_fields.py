"""Fields as they were when they were given, holding nothing of the program's alive.

What is queued is let go by the writer's thread, later: a tensor would keep its memory until
then, and a ``__del__`` would run there. Nothing is printed or converted but numbers: `repr`
of a device tensor would wait for the device.
"""

from __future__ import annotations

import numbers
from itertools import islice
from typing import Any, Final

from ._guard import FAILURE, is_theirs

#: Kept as they are.
PLAIN: Final = frozenset({str, int, float, bool, type(None)})
#: Of a container within a container, and so on.
_DEPTH: Final = 4
#: Values of one field, all its containers together; what follows is left out.
MOST_VALUES: Final = 1000
#: Type names of values that were left out. A program may make types without end.
_MOST_TYPES: Final = 1000

_absent: Final[dict[str, object]] = {}


def plain(fields: dict[str, Any]) -> dict[str, Any]:
    """`fields`, with copies or the types' names in the place of values that are not plain."""
    return {key: value if type(value) in PLAIN else _plain_field(value) for key, value in fields.items()}


def _plain_field(value: object) -> object:
    try:
        return _plain(value, _DEPTH, [MOST_VALUES])
    except FAILURE as error:  # a number that cannot be converted, a container changed meanwhile
        if is_theirs(error):
            raise
        return _stand_in(type(value))


def _plain(value: Any, depth: int, left: list[int]) -> object:
    kind = type(value)
    if kind in PLAIN:
        return value
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, int):
        return int.__int__(value)
    if issubclass(kind, float):
        return float.__float__(value)
    if issubclass(kind, numbers.Integral):
        return int(value)
    if issubclass(kind, numbers.Real):
        return float(value)
    if depth and issubclass(kind, dict):
        chosen = list(islice(dict.items(value), max(0, left[0])))
        left[0] -= len(chosen)
        return {_plain(key, 0, left): _plain(item, depth - 1, left) for key, item in chosen}
    if depth and issubclass(kind, (list, tuple)):
        walk = list.__iter__(value) if issubclass(kind, list) else tuple.__iter__(value)
        items = list(islice(walk, max(0, left[0])))
        left[0] -= len(items)
        return [_plain(item, depth - 1, left) for item in items]
    return _stand_in(kind)


def _stand_in(kind: type) -> object:
    """An empty object whose type has the same name, by which the writer names it."""
    name = kind.__qualname__
    found = _absent.get(name)
    if found is None:
        if len(_absent) >= _MOST_TYPES:
            return _OTHER
        found = _absent[name] = type(name, (), {"__slots__": (), "__qualname__": name})()
    return found


_OTHER: Final = _stand_in(object)
