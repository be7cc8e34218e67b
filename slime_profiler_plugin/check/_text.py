"""What is wrong with the text of a trace, wherever in it: found without parsing it.

A chunk of the text, cut between events, is looked at as an array of bytes: where its quotation marks
are tells what is inside a string. Only where something is amiss it is gone through event by event.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: A chunk is cut at the last of the first of these that it has (names of C++ have ``},`` too); a text
#: without any is cut nowhere until it is this long.
_CUTS: Final = (b"},\n", b'},{"', b'}, {"', b"},\r")
_CHUNK: Final = 1 << 18
_LARGEST: Final = 16 << 20
_BETWEEN_EVENTS: Final = re.compile(rb"(?<=\}),(?=\s*\{)")
_ESCAPE: Final = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ENDS_IN_BACKSLASH: Final = re.compile(rb'(?<!\\)(?:\\\\)+"')
_BEFORE_VALUE: Final = np.isin(np.arange(256), list(b":[, \t\r\n+-"))
_LONG_NUMBER: Final = re.compile(rb"(?<![\d.eE+])\d{16,}(?![\d.eE])")
#: Times in ns are read by those who know that they are.
_NS_KEY: Final = re.compile(rb'"(?:baseTimeNanoseconds|\w*_ns)"\s*:\s*-?$')
_EXACT: Final = 2**53
#: Longer integers are beyond 64 bits.
_MOST_DIGITS: Final = 20
_OVERFLOWS: Final = 2**63
#: Odd, and with bits everywhere: mixes what it multiplies.
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_QUOTE, _OPEN, _CLOSE, _CLOSE_LIST, _COLON, _COMMA, _SPACE = b'"{}]:, '
_SHOWN: Final = 60
#: Objects within more objects than that are not looked at for keys that stand twice.
_DEEPEST: Final = 50
#: Integers of fewer digits are exact; which bytes are looked at for those that are not.
_DIGITS: Final = 16
_STRIDE: Final = 4
_POWERS: Final = 10 ** np.arange(_DIGITS - 1, -1, -1)

Array = NDArray[Any]


class Fault:
    """How often something was met, and the first place."""

    def __init__(self) -> None:
        self.count = 0
        self.line = 0
        self.byte = 0
        self.shown = ""

    def __str__(self) -> str:
        return f"{self.shown} at line {self.line}, byte {self.byte}".strip()


class TextSurvey:
    """The faults of one text, of which `add` takes the blocks."""

    def __init__(self) -> None:
        self.controls = Fault()
        self.escapes = Fault()
        self.not_utf8 = Fault()
        self.not_finite = Fault()
        self.large_integers = Fault()
        self.duplicate_keys = Fault()
        self.trailing_commas = Fault()
        self.backslashes = Fault()
        self._pending: list[bytes] = []
        self._length = 0
        self._enough = _CHUNK
        self._byte = 0
        self._line = 1

    def add(self, blocks: Iterable[bytes]) -> None:
        """Look at the blocks of a whole text, in order."""
        for block in blocks:
            self._pending.append(block)
            self._length += len(block)
            if self._length >= self._enough:
                self._take(last=False)
        self._take(last=True)

    def _take(self, *, last: bool) -> None:
        text = b"".join(self._pending)
        cut = len(text)
        if not last and cut <= _LARGEST:
            cut = next((at + 1 for mark in _CUTS if (at := text.rfind(mark)) >= 0), 0)
        chunk, rest = text[:cut], text[cut:]
        if chunk and not self._scan(chunk, self._byte, self._line, whole=True):
            self._scan_singly(chunk)
        self._byte += len(chunk)
        self._line += chunk.count(b"\n")
        self._pending, self._length = [rest], len(rest)
        # What has no cut in it is looked at again when there is twice as much.
        self._enough = max(_CHUNK, 2 * len(rest))

    def _scan_singly(self, chunk: bytes) -> None:
        byte, line, start = self._byte, self._line, 0
        for cut in [*(match.start() for match in _BETWEEN_EVENTS.finditer(chunk)), len(chunk)]:
            event = chunk[start:cut]
            self._scan(event, byte, line, whole=False)
            byte += len(event)
            line += event.count(b"\n")
            start = cut

    def _scan(self, chunk: bytes, byte: int, line: int, *, whole: bool) -> bool:
        """Look at `chunk`; False: not understood, nothing noted.

        A `whole` chunk with anything odd inside a string is not believed: one quotation mark too few, and
        all that follows is taken for its contrary.
        """
        try:
            chunk.decode()
        except UnicodeDecodeError as error:
            if whole:
                return False
            marks = chunk.decode("utf-8", "replace").count("\ufffd") - chunk.count("\ufffd".encode())
            self._note(self.not_utf8, chunk, error.start, byte, line, marks)
        plain = chunk
        if b"\\" in chunk:
            plain = _ESCAPE.sub(lambda match: b"_" * len(match[0]), chunk)
        text = np.frombuffer(plain, np.uint8)
        quotes = np.flatnonzero(text == _QUOTE)
        if len(quotes) % 2:
            return False
        inside = _Inside(quotes)
        controls = inside.keep(np.flatnonzero(text < _SPACE))
        bad_escapes = inside.keep(np.flatnonzero(text == ord("\\"))) if b"\\" in plain else _NOWHERE
        if whole and (len(controls) or len(bad_escapes)):
            return False
        self._note_all(self.controls, chunk, controls, byte, line)
        self._note_all(self.escapes, chunk, bad_escapes, byte, line)
        if b"\\\\" in chunk:
            ends = np.array([match.end() - 1 for match in _ENDS_IN_BACKSLASH.finditer(chunk)], np.int64)
            self._note_all(self.backslashes, chunk, ends, byte, line)
        self._look_for_numbers(chunk, text, inside, byte, line)
        commas = inside.drop(_commas_before_an_end(text))
        self._note_all(self.trailing_commas, chunk, commas, byte, line)
        for at in _repeated_keys(plain, text, quotes, inside):
            self._note(self.duplicate_keys, chunk, at, byte, line)
        return True

    def _look_for_numbers(self, chunk: bytes, text: Array, inside: _Inside, byte: int, line: int) -> None:
        self._note_all(self.not_finite, chunk, inside.drop(_not_finite(text)), byte, line)
        large = [
            match.start()
            for match in _long_numbers(chunk, text)
            if _is_inexact(match[0]) and not _NS_KEY.search(chunk[: match.start()][-_SHOWN:])
        ]
        if large:
            self._note_all(self.large_integers, chunk, inside.drop(np.array(large, np.int64)), byte, line)

    def _note_all(self, fault: Fault, chunk: bytes, at: Array, byte: int, line: int) -> None:
        if len(at):
            self._note(fault, chunk, int(at[0]), byte, line, len(at))

    def _note(self, fault: Fault, chunk: bytes, at: int, byte: int, line: int, count: int = 1) -> None:
        if not fault.count:
            fault.byte = byte + at
            fault.line = line + chunk.count(b"\n", 0, at)
            fault.shown = _surroundings(chunk, at)
        fault.count += count


_NOWHERE: Final = np.empty(0, np.int64)


class _Inside:
    """Which positions of a chunk are inside a string."""

    def __init__(self, quotes: Array) -> None:
        self._quotes = quotes

    def keep(self, at: Array) -> Array:
        """Those of the sorted positions `at` that are."""
        return at[self._odd(at)]

    def drop(self, at: Array) -> Array:
        """Those that are not."""
        return at[~self._odd(at)]

    def _odd(self, at: Array) -> Array:
        return (np.searchsorted(self._quotes, at) & 1).astype(bool)


def _surroundings(chunk: bytes, at: int) -> str:
    """The text about a position, as far as it is on one line, unprintable bytes written out."""
    start = max(chunk.rfind(b"\n", 0, at) + 1, at - _SHOWN // 2)
    end = chunk.find(b"\n", at + 1)
    end = min(end if end >= 0 else len(chunk), at + _SHOWN // 2)
    shown = chunk[start:end].decode("utf-8", "backslashreplace").strip()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def _is_inexact(digits: bytes) -> bool:
    """Whether a number cannot be kept by a reader that has doubles, or signed 64-bit integers."""
    if len(digits.lstrip(b"0")) > _MOST_DIGITS:  # nor is it to be read here
        return True
    value = int(digits)
    return value > _EXACT and (value >= _OVERFLOWS or int(float(value)) != value)


def _not_finite(text: Array) -> Array:
    """Where a value begins with ``nan`` or ``inf``, upper case or lower."""
    lower = text | ord("a") - ord("A")
    found = [
        np.flatnonzero((lower[:-2] == word[0]) & (lower[1:-1] == word[1]) & (lower[2:] == word[2]))
        for word in (b"nan", b"inf")
    ]
    at = np.sort(np.concatenate(found))
    before = text[at - 1]
    return at[(at > 0) & _BEFORE_VALUE[before]]


def _long_numbers(chunk: bytes, text: Array) -> Iterator[re.Match[bytes]]:
    """Integers beyond 2⁵³. Such a row of 16 digits or more has, whatever comes before it, four bytes that
    are digits, each the fourth after another."""
    each = _are_digits(text[::_STRIDE])
    at = np.flatnonzero(each[:-3] & each[1:-2] & each[2:-1] & each[3:]) * _STRIDE
    for _ in range(_STRIDE - 1):  # to the first digit of the row, or one of the next row is the first
        at = at - ((at > 0) & _are_digits(text[at - 1]))
    at = at[(at + _DIGITS <= len(text)) & ~((at > 0) & _are_digits(text[at - 1]))]
    digits = text[at[:, np.newaxis] + np.arange(_DIGITS)]
    whole = _are_digits(digits).all(axis=1)
    at, digits = at[whole], digits[whole]
    first = (digits - ord("0")).astype(np.int64) @ _POWERS
    longer = _are_digits(text[np.minimum(at + _DIGITS, len(text) - 1)]) & (at + _DIGITS < len(text))
    for start in at[longer | (first > _EXACT)].tolist():
        match = _LONG_NUMBER.match(chunk, start)
        if match:
            yield match


def _are_digits(text: Array) -> Array:
    digits: Array = text - ord("0") < 10
    return digits


def _commas_before_an_end(text: Array) -> Array:
    """Positions of commas with nothing but white space between them and a closing bracket."""
    solid = np.flatnonzero(text > _SPACE)
    commas, after = solid[:-1], text[solid[1:]]
    found: Array = commas[(text[commas] == _COMMA) & ((after == _CLOSE) | (after == _CLOSE_LIST))]
    return found


def _repeated_keys(plain: bytes, text: Array, quotes: Array, inside: _Inside) -> Iterator[int]:
    """Positions of keys that their object has had already.

    Keys of one object are alike if a number made of a few of their bytes is; those that are get compared.
    """
    starts, ends = quotes[::2], quotes[1::2]
    after = np.minimum(ends + 1, len(text) - 1)
    is_key = text[after] == _COLON
    blank = text[after] == _SPACE
    if blank.any():
        is_key |= blank & (text[np.minimum(after + 1, len(text) - 1)] == _COLON)
    starts, ends = starts[is_key], ends[is_key]
    if len(starts) < 2:
        return
    hashes = _hash_keys(plain, starts + 1, ends)
    braces = inside.drop(np.flatnonzero((text == _OPEN) | (text == _CLOSE)))
    opens = text[braces] == _OPEN
    depths = np.cumsum(np.where(opens, 1, -1))
    before = np.searchsorted(braces, starts) - 1
    key_depths = np.where(before >= 0, depths[np.maximum(before, 0)] if len(depths) else 0, 0)
    shallowest, deepest = int(key_depths.min()), int(key_depths.max())
    for depth in range(shallowest, min(deepest, shallowest + _DEEPEST) + 1):
        chosen = np.flatnonzero(key_depths == depth)
        begins = braces[opens & (depths == depth)]
        objects = np.searchsorted(begins, starts[chosen])
        marks = hashes[chosen] + objects.astype(np.uint64) * _MIX
        in_order = np.sort(marks)
        if not (in_order[1:] == in_order[:-1]).any():
            continue
        order = np.argsort(marks, kind="stable")
        same = np.flatnonzero(marks[order][1:] == marks[order][:-1])
        for first, second in zip(chosen[order[same]], chosen[order[same + 1]], strict=True):
            if plain[starts[first] : ends[first]] == plain[starts[second] : ends[second]]:
                yield int(starts[second])


def _hash_keys(plain: bytes, starts: Array, ends: Array) -> Array:
    """A number for each key, made of its length and its first and last eight bytes."""
    padded = plain + bytes(8)
    words: Array = np.ndarray(len(plain), np.dtype("<u8"), padded, strides=(1,))
    lengths = ends - starts
    unused = np.uint64(8) * (8 - np.minimum(lengths, 8)).astype(np.uint64)
    first = np.where(lengths > 0, words[starts] << unused, 0)
    last = np.where(lengths > 8, words[np.maximum(ends - 8, 0)], 0)
    hashes: Array = ((first * _MIX ^ last) * _MIX + lengths.astype(np.uint64)) * _MIX
    return hashes
