"""Values of others' programs as JSON can say them, of bounded size."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any, Final

_DEPTH: Final = 4
#: Values of one event, all its containers together.
_MOST_VALUES: Final = 1000
_LONGEST_TEXT: Final = 4096
_INT64: Final = 2**63


def plain_value(value: object, depth: int = _DEPTH, left: list[int] | None = None) -> Any:
    """`value`, with the name of its type for what is no plain value, and without its end where it is long.

    >>> plain_value({"a": (1, float("nan")), 2: b"xyz"})
    {'a': [1, 'nan'], '2': 'bytes (3)'}
    """
    left = [_MOST_VALUES] if left is None else left
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _shorten(value)
    if isinstance(value, int):
        return int(value) if -_INT64 <= value < _INT64 else _shorten(hex(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, dict) and depth:
        return {
            _key(key): plain_value(inner, depth - 1, left)
            for key, inner in _take(value.items(), len(value), left)
        }
    if isinstance(value, (list, tuple)) and depth:
        taken = [plain_value(inner, depth - 1, left) for inner in _take(value, len(value), left)]
        return taken if len(taken) == len(value) else [*taken, f"… {len(value) - len(taken)} more"]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return _number(value)
    return _describe(value)


def _number(value: Any) -> Any:
    """A number of numpy or torch."""
    told = value.item()
    return plain_value(told) if isinstance(told, (bool, int, float, str)) else _describe(value)


def _take(values: Any, count: int, left: list[int]) -> list[Any]:
    taken = list(islice(values, min(count, left[0])))
    left[0] -= len(taken)
    return taken


def _key(key: object) -> str:
    return _shorten(key if isinstance(key, str) else str(plain_value(key, 0)))


def _shorten(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    more = len(text) - _LONGEST_TEXT
    return text if more <= 0 else f"{text[:_LONGEST_TEXT]}… {more} more characters"


def _describe(value: object) -> str:
    name = type(value).__name__
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{name} {tuple(shape)}"
    return f"{name} ({len(value)})" if hasattr(value, "__len__") else name
