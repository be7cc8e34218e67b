"""The top-level keys of a trace: what stands before and behind its list of events.

Real writers break them (a bare ``NaN``, a raw line end, quotes that are not escaped in what a user added): a
key that cannot be read costs no other key, and no event.
"""

from __future__ import annotations

import json
import re
from enum import Enum, auto
from typing import Any, Final

from ._repair import repair
from ._scan import ScanError, skip_separators, skip_space, string_end, value_end

EVENTS_KEY: Final = "traceEvents"
#: Where reading goes on behind a value that cannot be read.
_NEXT_KEY: Final = re.compile(r',[ \t\r\n]*("[^"\\\n]*")[ \t\r\n]*:')
_REST_OF_KEY: Final = re.compile(r'[^"\\\n]+"[ \t\r\n]*:')
_EVENTS: Final = re.compile(r'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[')
#: Faults kept for their reasons.
_KEPT: Final = 20


class Stop(Enum):
    """Why the reading of members stopped."""

    #: Behind the bracket that begins the list of events.
    EVENTS = auto()
    #: Behind the brace that ends the object.
    END = auto()
    #: The text ends within a member.
    MORE = auto()
    #: At a key that no trace has: `Members.other` says what the file is.
    OTHER = auto()


class Members:
    """Reads members from one stretch of text after another into `metadata`.

    `mended` are faults that cost nothing, `lost` keys of which the value could not be read: (byte, what). The
    byte is one of the content, of which the text begins at `base`.
    """

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}
        self.mended: list[tuple[int, str]] = []
        self.lost: list[tuple[int, str]] = []
        self.other = ""
        self.base = 0
        self._searching = False
        self._in_tail = False
        #: Where the last fault is in the text.
        self._fault = 0

    def read(self, text: str, at: int, *, last: bool) -> tuple[Stop, int]:
        """Reads from `at`; gives why it stopped and the position from which to go on.

        `text` is bytes as latin-1. `last`: nothing follows it.
        """
        self._fault = at
        while True:
            if self._searching:
                found = self._find_next(text, at)
                if found is None:
                    is_end = last and text.endswith("}", at, len(text.rstrip(" \t\r\n")))
                    return (Stop.END, len(text)) if is_end else (Stop.MORE, at)
                at = found
                self._searching = False
            at = skip_separators(text, at)
            if at >= len(text):
                return Stop.MORE, at
            if text[at] == "}":
                is_blank = skip_space(text, at + 1) == len(text)
                if not self.lost or (is_blank and last):
                    return Stop.END, at + 1
                if is_blank:
                    return Stop.MORE, at
                # It may close something inside a value that could not be read.
                at += 1
                self._searching = True
                continue
            try:
                key, value_at = _read_key(text, at)
                if key == EVENTS_KEY and text[value_at] == "[":
                    self._in_tail = True
                    return Stop.EVENTS, value_at + 1
                self.other = name_other(key, self.metadata)
                if self.other:
                    return Stop.OTHER, at
            except ScanError as error:
                if error.is_open and not last:
                    return Stop.MORE, at
                self._lose(at, f"a top-level key was expected: {error}")
                at = max(error.position, at + 1)
                continue
            try:
                at = self._read_value(text, key, value_at)
                self._check_border(text, key, at, last=last)
            except ScanError as error:
                if error.is_open and not last:
                    return Stop.MORE, at
                self._lose(value_at, f"the value of {key[:80]!r} cannot be read: {error}")
                at = error.position

    def _find_next(self, text: str, at: int) -> int | None:
        """Where reading goes on behind a fault: at the next key, or at the events."""
        if text[at - 1 : at] == '"' and _REST_OF_KEY.match(text, at):
            return at - 1  # its quote was taken for the end of a string that has none
        key = _NEXT_KEY.search(text, at)
        if not self._in_tail and len(self.lost) < _KEPT:
            # With a bracket or a quote missing, the events may have been taken for a part of the value.
            events = _EVENTS.search(text, self._fault)
            if events and (key is None or events.start() < key.start(1)):
                return events.start()
        return None if key is None else key.start(1)

    def _check_border(self, text: str, key: str, at: int, *, last: bool) -> None:
        """Raises `ScanError` where a value that was read seems to be the beginning of another."""
        border = skip_space(text, at)
        if border < len(text) and text[border] not in ",}":
            del self.metadata[key]
            raise ScanError(border, "it does not end where it seems to")
        if border >= len(text) and not last:
            raise ScanError(border, "nothing follows", is_open=True)

    def _lose(self, at: int, reason: str) -> None:
        self._searching = True
        self._fault = at
        if len(self.lost) < _KEPT:
            self.lost.append((self.base + at, reason))

    def _read_value(self, text: str, key: str, at: int) -> int:
        try:
            end = value_end(text, at)
            content = text[at:end].encode("latin-1")
        except ScanError as error:
            if error.is_open:
                raise
            content, end, _ = repair(text, at)
            self._mend(at, f"the value of {key[:80]!r} was no JSON")
        if end == len(text) and text[at] not in '{["':
            raise ScanError(end, "it has no end", is_open=True)
        try:
            value = json.loads(content.decode(), parse_constant=_refuse_constant)
            self.metadata[key] = _as_text(value) if b"\\u" in content else value
        except (ValueError, RecursionError):
            self.metadata[key] = self._load(content, key, at)
        return end

    def _load(self, content: bytes, key: str, at: int) -> Any:
        try:
            text = content.decode("utf-8", "replace")
            value = json.loads(text, strict=False, parse_int=_parse_int, parse_constant=_no_constant)
            value = _as_text(value)
        except (ValueError, RecursionError):
            self._lose(at, f"the value of {key[:80]!r} cannot be read")
            self._searching = False
            return None
        self._mend(at, f"the value of {key[:80]!r} was no JSON")
        return value

    def _mend(self, at: int, reason: str) -> None:
        if len(self.mended) < _KEPT:
            self.mended.append((self.base + at, reason))


def name_other(key: str, before: dict[str, Any]) -> str:
    """What a file is whose top-level keys are `before` and `key`, where no trace has them; else nothing.

    Told as early as that, so that a large one need not be read.
    """
    if key == "nodes" and "schema" in before:
        return "a PyTorch execution trace (a graph of operators)"
    if key == "rocprofiler-sdk-tool":
        return "the JSON output of rocprofiler"
    return ""


def _as_text(value: Any) -> Any:
    """`value` with a question mark for each half of a surrogate: no strict JSON has them."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_as_text(inner) for inner in value]
    if isinstance(value, dict):
        return {_as_text(key): _as_text(inner) for key, inner in value.items()}
    return value


def _read_key(text: str, at: int) -> tuple[str, int]:
    """The key at `at`, and where its value begins. Raises `ScanError`."""
    if text[at] != '"':
        raise ScanError(at, "no quote")
    end = string_end(text, at)
    colon = skip_space(text, end)
    if colon >= len(text):
        raise ScanError(colon, "it has no end", is_open=True)
    if text[colon] != ":":
        raise ScanError(end, "':' expected")
    value_at = skip_space(text, colon + 1)
    if value_at >= len(text):
        raise ScanError(value_at, "it has no end", is_open=True)
    try:
        key = text[at:end].encode("latin-1").decode("utf-8", "replace")
        return str(_as_text(json.loads(key, strict=False))), value_at
    except ValueError as error:
        raise ScanError(end, "no JSON string") from error


def _parse_int(text: str) -> int | str:
    """Python refuses to convert thousands of digits."""
    try:
        return int(text)
    except ValueError:
        return text


def _no_constant(_: str) -> None:
    """NaN and Infinity are nothing."""


def _refuse_constant(constant: str) -> None:
    raise ValueError(constant)
