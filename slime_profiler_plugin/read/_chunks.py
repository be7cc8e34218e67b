"""The events of a Chrome trace, piece by piece, without parsing it as a whole.

A block of text is cut at what looks like the last border between two events and decoded at once. A real
parser is what decides: a cut that is none leaves a bracket open, and then the block is walked through value
by value (`_walk.py`), which also copes with all that is no JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from ._events import TraceEvent, decode_many
from ._layout import Layout
from ._members import Members, Stop
from ._text import mend_utf8
from ._walk import Walk

#: Text is decoded in pieces of about this size, unless another is wanted.
_PIECE: Final = 1 << 20
#: The layout is taken from so much text.
_HEAD: Final = 1 << 16
#: An event, or one of the other values, is never larger than this.
_LARGEST: Final = 64 << 20
#: Text without a border of events is walked through when there is so much of it.
_PATIENCE: Final = 4 << 20
#: A border of two events may lie so far across the border of two blocks.
_OVERLAP: Final = 1 << 12
_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = b" \t\r\n"
_PH: Final = re.compile(rb'"ph"[ \t\r\n]*:')


class TraceText:
    """The events of one trace, and what stands around them.

    `layout` is ``object`` or ``array`` once that is known, `found` whether a list of events begins. After
    `pieces` is exhausted: `metadata` are the other top-level keys, `closed` says whether list and object have
    their ends, `oversized` whether a value before the list was given up for its size, `torn_bytes` is what
    was left behind the last whole event, `trailing` what stands behind the end: (byte, bytes, events in it).
    What was bad inside is in `walk` and `members`.
    """

    def __init__(self, blocks: Iterator[bytes], piece: int = _PIECE) -> None:
        self.layout = ""
        self.found = False
        self.closed = False
        self.oversized = False
        self.torn_bytes = 0
        self.trailing: tuple[int, int, int] | None = None
        self.walk = Walk()
        self.members = Members()
        self.first_bytes = b""
        self._blocks = blocks
        self._piece = piece
        self._layout = Layout()
        self._pending = b""
        #: Where in the content `_pending` begins.
        self._position = 0

    @property
    def metadata(self) -> dict[str, Any]:
        """The top-level keys read so far, without the events."""
        return self.members.metadata

    def pieces(self) -> Iterator[list[TraceEvent]]:
        """Lists of events in file order, none of them empty."""
        if not self._begin():
            return
        inside = self.layout == "array" or self._read_members()
        self.found = inside
        while inside:
            yield from self._read_list()
            if not self.walk.closed:
                return
            inside = self.layout == "object" and self._read_members()
        if self.closed or self.layout == "array":
            self.closed = True
            self._read_trailing()

    def rest(self) -> Iterator[bytes]:
        """What was not decoded yet, as text; nothing more can be decoded afterwards."""
        yield self._pending
        yield from self._blocks

    def _fetch(self, least: int) -> list[bytes]:
        """The next blocks, with `least` bytes in all, or a piece; none at the end."""
        blocks = []
        missing = max(least, self._piece)
        for block in self._blocks:
            blocks.append(block)
            missing -= len(block)
            if missing <= 0:
                break
        return blocks

    def _more(self, least: int = 0) -> bool:
        """Reads on, as `_fetch` does; whether there is any more."""
        blocks = self._fetch(least)
        self._pending = b"".join((self._pending, *blocks))
        return bool(blocks)

    def _drop(self, count: int) -> None:
        self._pending = self._pending[count:]
        self._position += count

    def _begin(self) -> bool:
        self._more()
        self.first_bytes = self._pending[:512]
        if self._pending.startswith(_BOM):
            self._drop(len(_BOM))
        while not (rest := self._pending.lstrip(_SPACE)):
            self._drop(len(self._pending))
            if not self._more():
                break
        if not rest.startswith((b"[", b"{")):
            self.torn_bytes = len(self._pending)
            return False
        self.layout = "object" if rest.startswith(b"{") else "array"
        self._drop(len(self._pending) - len(rest) + 1)
        return True

    def _read_members(self) -> bool:
        """Reads other keys, up to a list of events (true), to the end of the object, or of the text."""
        last = False
        while True:
            self.members.base = self._position
            stop, at = self.members.read(self._pending.decode("latin-1"), 0, last=last)
            self._drop(at)
            if stop is not Stop.MORE:
                self.closed = stop is Stop.END
                return stop is Stop.EVENTS
            if last:
                self.torn_bytes = len(self._pending)
                return False
            self.oversized = len(self._pending) > _LARGEST
            last = self.oversized or not self._more(max(self._piece, len(self._pending)))

    def _read_list(self) -> Iterator[list[TraceEvent]]:
        walk = self.walk
        walk.closed = False
        ended = len(self._pending) < min(_HEAD, self._piece) and not self._more()
        self._layout.learn(self._pending[:_HEAD].decode("latin-1"))
        fresh: list[bytes] = []
        while True:
            cut = 0 if walk.is_astray else self._cut(fresh)
            events = self._decode(fresh, cut) if cut else None
            least = self._piece
            finished = False
            if events is None:
                self._pending = b"".join((self._pending, *fresh))
                if cut or ended or walk.is_astray or len(self._pending) > _PATIENCE:
                    walk.base = self._position
                    events, at = walk.read(self._pending, last=ended, full=len(self._pending) > _LARGEST)
                    if not at:  # twice as much each time: nothing is looked at again more often than that
                        least = max(least, len(self._pending))
                    self._drop(at)
                    finished = walk.closed or ended
            if events:
                yield events
            if finished:
                break
            fresh = [] if ended else self._fetch(least)
            ended = not fresh
        if not walk.closed:
            self.torn_bytes = len(self._pending.strip(b" \t\r\n,"))

    def _cut(self, fresh: list[bytes]) -> int:
        """Where the text can be cut: a position in the last of the `fresh` blocks, if there are any."""
        if fresh:
            cut = self._layout.cut(fresh[-1])
            if cut:
                return cut
            # What was there before has no border: it would have been cut there.
            since = max(0, len(self._pending) - _OVERLAP)
            self._pending = b"".join((self._pending, *fresh))
            fresh.clear()
            return self._layout.cut(self._pending, since)
        return self._layout.cut(self._pending)

    def _decode(self, fresh: list[bytes], cut: int) -> list[TraceEvent] | None:
        """The events up to `cut`, and what is behind it stays; ``None`` if that fails: then all stays."""
        head = self._pending if fresh else self._pending[:cut]
        views = [memoryview(block) for block in fresh]
        if views:
            views[-1] = views[-1][:cut]
        # One copy of the text, and no other: that is a fifth of the time it takes to decode it.
        text, replaced, names = mend_utf8(b"".join((b"[", head.lstrip(b" \t\r\n,"), *views, b"]")))
        events = decode_many(text)
        if events is None:
            return None
        self.walk.replaced += replaced
        self.walk.replaced_names += names
        self.walk.resumed = False
        rest = fresh[-1][cut:] if fresh else self._pending[cut:]
        self._position += len(head) + sum(map(len, views))
        self._pending = rest
        return events

    def _read_trailing(self) -> None:
        at = self._position
        size = events = 0
        while True:
            rest = self._pending.strip(b" \t\r\n\0") if not size else self._pending
            size += len(rest)
            events += len(_PH.findall(rest))
            self._position += len(self._pending)
            self._pending = b""
            if not self._more():
                break
        if size:
            self.trailing = (at, size, events)
