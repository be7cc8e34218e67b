"""Cutting the text of a Chrome trace into events without parsing it as a whole.

A raw newline cannot stand inside a JSON string, so a line end between ``},`` and ``{`` is
always structure. It may still be structure inside one event's ``args``: every piece is
therefore decoded by a real parser, and one that does not decode is gone through event by
event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

#: Between two events: as torch.profiler writes them, and one event to a line.
_BOUNDARIES: Final = (b"\n  },\n  {", b"},\n{")
_BOUNDARY: Final = re.compile(r"\n  \},\n  \{|\},\n\{")
_EVENTS_KEY: Final = re.compile(r'"traceEvents"\s*:\s*\[')
_SEPARATOR: Final = re.compile(r"[\s,]*")
#: An event, or the text before the first one, is never larger than this.
_LARGEST: Final = 64 << 20
#: A parser that stops this close to the end of its text may only be missing what follows.
_CUT_TOKEN: Final = 16

Event = TypeVar("Event")


@dataclass(frozen=True)
class Codec(Generic[Event]):
    """How events are decoded: many at once, or one; both raise `msgspec.DecodeError`.

    `many` takes a JSON array, `one` a JSON object that a lenient parser has accepted.
    """

    many: Callable[[bytes], list[Event]]
    one: Callable[[bytes], Event]


class TraceText(Generic[Event]):
    """The events of one trace, piece by piece, and what stands around them.

    After `pieces` is exhausted: `metadata` are the other top-level keys, `closed` says whether
    the array of events has its end, `torn_bytes` is what was left behind the last whole
    event, `bad` are (byte, reason) of events that could not be decoded, `replaced` counts bytes
    that were not UTF-8.
    """

    def __init__(self, blocks: Iterator[bytes], codec: Codec[Event]) -> None:
        self.metadata: dict[str, Any] = {}
        self.found = False
        self.closed = False
        self.torn_bytes = 0
        self.bad: list[tuple[int, str]] = []
        self.replaced = 0
        self._blocks = blocks
        self._codec = codec
        self._position = 0

    def pieces(self) -> Iterator[list[Event]]:
        """Lists of events in file order."""
        pending = self._read_header()
        if not self.found:
            self.torn_bytes = len(pending)
            return
        for block in self._blocks:
            pending += block
            cut = max(
                pending.rfind(mark) + mark.index(b"}") + 1 if mark in pending else 0 for mark in _BOUNDARIES
            )
            if not cut:
                if len(pending) <= _LARGEST:
                    continue
                cut = len(pending)
            events, left = self._decode(pending[:cut], last=False)
            if events:
                yield events
            pending = left + pending[cut:]
            if self.closed:
                break
        if self.closed:
            self._read_footer(pending)
            return
        events, left = self._decode(pending, last=True)
        if events:
            yield events
        if self.closed:
            self._read_footer(left)
        else:
            self.torn_bytes = len(left.strip(b" \t\r\n,"))

    def _read_header(self) -> bytes:
        """Reads up to the first event; gives what was read behind that."""
        text = b""
        for block in self._blocks:
            text += block
            for match in _EVENTS_KEY.finditer(text.decode("latin-1")):
                head = text[: match.start()].rstrip(b" \t\r\n,")
                metadata = _parse_object(head + b"}")
                if metadata is not None:
                    self.metadata.update(metadata)
                    self.found = True
                    self._position = match.end()
                    return text[match.end() :]
            if len(text) > _LARGEST:
                break
        return text

    def _read_footer(self, rest: bytes) -> None:
        tail = rest + b"".join(self._blocks)
        metadata = _parse_object(b"{" + tail.lstrip(b" \t\r\n,"))
        if metadata is None:
            self.closed = False
            self.torn_bytes = len(tail)
        else:
            self.metadata.update(metadata)

    def _decode(self, piece: bytes, *, last: bool) -> tuple[list[Event], bytes]:
        """The events of `piece`, and what behind them needs more text to be decoded."""
        piece = self._valid_utf8(piece)
        if not last:
            try:
                events = self._codec.many(b"[" + piece.lstrip(b" \t\r\n,") + b"]")
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass
            else:
                self._position += len(piece)
                return events, b""
        return self._decode_singly(piece, last=last)

    def _decode_singly(self, piece: bytes, *, last: bool) -> tuple[list[Event], bytes]:
        text = piece.decode()
        events: list[Event] = []
        parser = json.JSONDecoder(strict=False)
        at = _skip(text, 0)
        while at < len(text):
            if text[at] == "]":
                self.closed = True
                at += 1
                break
            try:
                _, end = parser.raw_decode(text, at)
                events.append(self._codec.one(text[at:end].encode()))
            except (ValueError, RecursionError) as error:
                if _needs_more(error, text):
                    break
                self.bad.append((self._position + at, str(error)))
                resume = _BOUNDARY.search(text, at + 1)
                if resume is None:
                    at = len(text)
                    break
                end = resume.end() - 1
            at = _skip(text, end)
        left = text[at:].encode()
        if not last and len(left) > _LARGEST:
            self.bad.append((self._position + at, f"no event ends within {_LARGEST} bytes"))
            left = b""
        self._position += len(piece) - len(left)
        return events, left

    def _valid_utf8(self, piece: bytes) -> bytes:
        try:
            piece.decode()
        except UnicodeDecodeError:
            text = piece.decode("utf-8", "replace")
            self.replaced += text.count("\ufffd") - piece.count("\ufffd".encode())
            return text.encode()
        return piece


def _needs_more(error: Exception, text: str) -> bool:
    """Whether the parser only ran out of text."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated string") or error.pos >= len(text) - _CUT_TOKEN


def _skip(text: str, at: int) -> int:
    match = _SEPARATOR.match(text, at)
    return match.end() if match else at


def _parse_object(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text.decode("utf-8", "replace"), strict=False, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
