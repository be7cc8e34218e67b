"""How a file's events are laid out: where a block of its text may be cut."""

from __future__ import annotations

import re
from typing import Final

from ._scan import ScanError, skip_separators, skip_space, value_end

#: Between two events, or two objects inside one.
_BETWEEN: Final = re.compile(rb"\}[ \t\r\n]*(?:,[ \t\r\n]*)?\{")
_FIRST_KEY: Final = re.compile(r'\{[ \t\r\n]*"[^"\\]*"')
#: The tail of a block in which a cut is looked for first.
_TAIL: Final = 1 << 12
_GROWTH: Final = 16


class Layout:
    """Finds the last place in a block that looks like the border of two events.

    It may be a border of something inside an event: what is cut there does not decode. In a file with line
    ends between its events, that text between them is looked for; a raw line end cannot stand in a string.
    Else the first key of an event is part of it, for objects inside events begin otherwise.
    """

    def __init__(self) -> None:
        self._mark = b""
        self._to_brace = 0

    def learn(self, text: str) -> None:
        """Take the layout from the first events of `text` (bytes as latin-1)."""
        try:
            end = value_end(text, skip_space(text, 0))
            begin = skip_separators(text, end)
            value_end(text, begin)
        except ScanError:
            return
        if text[end - 1] != "}" or text[begin] != "{":
            return
        key = _FIRST_KEY.match(text, begin)
        between = text[end - 1 : begin + 1]
        if "\n" in between:
            indent = text[: end - 1]
            between = indent[len(indent.rstrip(" \t\r\n")) :] + between
        elif key:
            between = text[end - 1 : key.end()]
        self._mark = between.encode("latin-1")
        self._to_brace = between.index("}") + 1

    def cut(self, block: bytes, since: int = 0) -> int:
        """The position behind the last whole event, as far as can be seen; 0 where none can.

        `since`: nothing before can be it.
        """
        if self._mark:
            at = block.rfind(self._mark, since)
            if at >= 0:
                return at + self._to_brace
        tail = _TAIL
        while True:
            begin = max(since, len(block) - tail)
            last = None
            for match in _BETWEEN.finditer(block, begin):
                last = match
            if last is not None:
                return last.start() + 1
            if begin == since:
                return 0
            tail *= _GROWTH
