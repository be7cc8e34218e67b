"""JSON that says what it means, though not as it should: rewritten so that a strict parser takes it.

Taken as meant: raw control characters, trailing commas, ``NaN`` and ``Infinity`` (null), half a surrogate
pair (``?``), and a backslash that begins no escape (a backslash: ``C:\\qemp``). Nothing else is guessed.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ._scan import ScanError, skip_space, string_end

#: What is nested deeper is no event of anyone's.
_DEEPEST: Final = 500
_UNCLEAN: Final = re.compile(r"[\x00-\x1f\\]")
_ESCAPE: Final = re.compile(
    r"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r'|(?P<good>\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))'
    r"|(?P<bad>\\)"
    r"|(?P<control>[\x00-\x1f])"
)
_SCALAR: Final = re.compile(r"[-+.\w]+", re.ASCII)
_STRICT: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_NO_NUMBER: Final = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[-+]?(?:NaN|Infinity)\b', re.DOTALL)
_CLOSING: Final = {"{": "}", "[": "]"}


class Repaired(NamedTuple):
    """A value as strict JSON; `end` is where it ended, `guessed` that a backslash was taken for itself."""

    text: bytes
    end: int
    guessed: bool


def repair(text: str, at: int) -> Repaired:
    """The value that begins at `at`, as strict JSON. Raises `ScanError` where even that is not possible.

    >>> repair('{"path": "C:\\\\qemp", "x": [1, NaN,],}', 0).text
    b'{"path":"C:\\\\\\\\qemp","x":[1,null]}'
    """
    return _Repair(text).value(at)


def repair_tokens(text: str) -> Repaired:
    """As `repair`, of a whole value of which only strings and numbers may be wrong: ten times as fast.

    Whether it is strict JSON then has to be seen.
    """
    guessed = False

    def mend(match: re.Match[str]) -> str:
        nonlocal guessed
        token = match[0]
        if token[0] != '"':
            return "null"
        if _UNCLEAN.search(token):
            inner = _ESCAPE.sub(_mend_escape, token[1:-1])
            guessed = guessed or any(found["bad"] for found in _ESCAPE.finditer(token, 1, len(token) - 1))
            return f'"{inner}"'
        return token

    return Repaired(_TOKEN.sub(mend, text).encode("latin-1"), len(text), guessed)


class _Repair:
    """One walk over a value: what is open, what may come next, what has been written."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._out: list[str] = []
        self._open: list[str] = []
        self._guessed = False

    def value(self, at: int) -> Repaired:
        at = self._begin(at)
        while self._open:
            at = self._step(at)
        return Repaired("".join(self._out).encode("latin-1"), at, self._guessed)

    def _step(self, at: int) -> int:
        """One member of the innermost open value, or its end, with the comma that may follow."""
        at = skip_space(self._text, at)
        closing = self._open[-1]
        first = self._out[-1] in "{["
        if self._peek(at) == closing:
            return self._close(at)
        if not first:
            if self._text[at] != ",":
                raise ScanError(at, f"',' or '{closing}' expected")
            at = skip_space(self._text, at + 1)
            if self._peek(at) == closing:
                return self._close(at)
            self._out.append(",")
        if closing == "}":
            at = self._key(at)
        return self._begin(at)

    def _key(self, at: int) -> int:
        if self._peek(at) != '"':
            raise ScanError(at, "a key in quotes expected")
        at = skip_space(self._text, self._string(at))
        if self._peek(at) != ":":
            raise ScanError(at, "':' expected")
        self._out.append(":")
        return skip_space(self._text, at + 1)

    def _begin(self, at: int) -> int:
        mark = self._peek(at)
        if mark in _CLOSING:
            if len(self._open) >= _DEEPEST:
                raise ScanError(at, f"nested deeper than {_DEEPEST}")
            self._open.append(_CLOSING[mark])
            self._out.append(mark)
            return at + 1
        return self._string(at) if mark == '"' else self._scalar(at)

    def _close(self, at: int) -> int:
        self._out.append(self._open.pop())
        return at + 1

    def _peek(self, at: int) -> str:
        if at >= len(self._text):
            raise ScanError(at, "it has no end", is_open=True)
        return self._text[at]

    def _scalar(self, at: int) -> int:
        match = _SCALAR.match(self._text, at)
        if match is None:
            raise ScanError(at, "a value expected")
        if _STRICT.fullmatch(match[0]):
            self._out.append(match[0])
        elif _NO_NUMBER.fullmatch(match[0]):
            self._out.append("null")
        else:
            raise ScanError(at, f"{match[0][:40]} is no value", is_open=match.end() == len(self._text))
        return match.end()

    def _string(self, at: int) -> int:
        end = string_end(self._text, at)
        inner = self._text[at + 1 : end - 1]
        if _UNCLEAN.search(inner):
            self._guessed = self._guessed or any(found["bad"] for found in _ESCAPE.finditer(inner))
            inner = _ESCAPE.sub(_mend_escape, inner)
        self._out.append(f'"{inner}"')
        return end


def _mend_escape(match: re.Match[str]) -> str:
    kind = match.lastgroup
    if kind == "control":
        return f"\\u{ord(match[0]):04x}"
    if kind == "half":
        return "?"
    return "\\\\" if kind == "bad" else match[0]
