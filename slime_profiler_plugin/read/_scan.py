"""Finding where a JSON value ends, in text that may be cut or damaged, in linear time.

The text is bytes decoded as latin-1: a position in it is a byte, and no part of JSON's structure is other
than ASCII.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

#: A value is looked for in so much text first, then in ever more: an error costs no more than that.
_WINDOW: Final = 1 << 13
_GROWTH: Final = 8
#: Beyond so much text a value is only counted out, without building what it says.
_BUILT: Final = 4 << 20
#: A parser that stops this close to the end of its text may only be missing what follows.
_CUT_TOKEN: Final = 16
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_SEPARATOR: Final = re.compile(r"[ \t\r\n,]*")
#: What says where a value ends. A set alone is searched for nine times as fast as alternatives are.
_MARKS: Final = '"[]{}'
_MARK: Final = re.compile(r'["\[\]{}]')
#: Where so much text has none, the next one is looked for as `str.find` does, ten times as fast again.
_NEAR: Final = 1 << 12
#: Brackets that all open or all close: a file of nothing but brackets is one step, not millions.
_BRACKETS: Final = re.compile(r"[\[{]+|[\]}]+")
_SCAN: Final[Callable[[str, int], tuple[object, int]]] = json.JSONDecoder(  # type: ignore[attr-defined]
    strict=False, parse_int=str, parse_float=str, parse_constant=str
).scan_once


class ScanError(ValueError):
    """No value could be read; `position` is where that was seen, `is_open` that text may only be missing."""

    def __init__(self, position: int, reason: str, *, is_open: bool = False) -> None:
        super().__init__(reason)
        self.position = position
        self.is_open = is_open


def skip_space(text: str, at: int) -> int:
    """The first position from `at` that is no white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def skip_separators(text: str, at: int) -> int:
    """The first position from `at` that is neither white space nor a comma."""
    match = _SEPARATOR.match(text, at)
    return match.end() if match else at


def value_end(text: str, at: int) -> int:
    """The position behind the value that begins at `at`.

    It may hold what only lenient parsers take: raw control characters, ``NaN``, lone surrogates. Raises
    `ScanError`; what lies between `at` and its position has been looked at, and that in time proportional to
    its length.

    >>> value_end('{"a": [1, "}"]}, {', 0)
    15
    """
    window = _WINDOW
    while True:
        part = text[at : at + window]
        is_all = at + window >= len(text)
        try:
            return at + _SCAN(part, 0)[1]
        except StopIteration as error:
            position, reason = int(error.value), "no value"
        except json.JSONDecodeError as error:
            position, reason = error.pos, error.msg
        except RecursionError:
            return structure_end(text, at)
        is_open = reason.startswith("Unterminated string") or position >= len(part) - _CUT_TOKEN
        if not is_open or is_all:
            raise ScanError(at + position, reason, is_open=is_open)
        window *= _GROWTH
        if window > _BUILT:
            return structure_end(text, at)


def structure_end(text: str, at: int) -> int:
    """As `value_end`, of an object or a list, by its brackets and strings alone: at any depth and size."""
    depth = 0
    position = at
    while (begin := _next_mark(text, position)) >= 0:
        brackets = _BRACKETS.match(text, begin)
        if brackets is None:
            position = string_end(text, begin)
        elif text[begin] in "{[":
            position = brackets.end()
            depth += position - begin
        else:
            position = min(brackets.end(), begin + max(depth, 1))
            depth -= position - begin
        if depth <= 0:
            return position
    raise ScanError(len(text), "it has no end", is_open=True)


def _next_mark(text: str, at: int) -> int:
    """The first position from `at` of a quote or bracket, -1 where there is none."""
    found = _MARK.search(text, at, at + _NEAR)
    if found:
        return found.start()
    at += _NEAR
    size = _NEAR
    while at < len(text):
        size *= 2
        places = [text.find(mark, at, at + size) for mark in _MARKS]
        nearest = min((place for place in places if place >= 0), default=-1)
        if nearest >= 0:
            return nearest
        at += size
    return -1


def string_end(text: str, at: int) -> int:
    """The position behind the string that begins with the quote at `at`. Raises `ScanError`."""
    quote = at
    while True:
        quote = text.find('"', quote + 1)
        if quote < 0:
            raise ScanError(len(text), "Unterminated string", is_open=True)
        before = quote - 1
        while before > at and text[before] == "\\":
            before -= 1
        if (quote - before) % 2:
            return quote + 1
