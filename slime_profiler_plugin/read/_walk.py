"""Going through a list of events value by value: for text that does not decode at once.

What is no event is set aside and told with its place, and reading goes on at the next that is one. Every
byte is looked at a bounded number of times.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from ._events import TraceEvent, decode_one
from ._members import Members, Stop
from ._repair import repair
from ._scan import ScanError, skip_separators, skip_space, value_end
from ._text import mend_utf8

#: Where an event may begin behind one that is torn, or in another trace's list.
_CANDIDATE: Final = re.compile(r'(?:[,}][ \t\r\n]*|"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*)\{')
_LIST_END: Final = re.compile(r"\}[ \t\r\n]*(?:,[ \t\r\n]*)?\](?=[ \t\r\n]*(?:$|[,}]))")
_FOREIGN: Final = re.compile(r'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[')
#: Bad events kept with their reasons; the rest are only counted.
_KEPT: Final = 20
#: Text kept back while an event is looked for, for what looks for it may lie across a block's end.
_OVERLAP: Final = 1 << 16
#: Guesses at where reading may go on, each of which costs a look at all the rest.
_GUESSES: Final = 8


class Bad(NamedTuple):
    """Something in the list that is no event: where it begins, and what is wrong with it."""

    position: int
    reason: str


class Walk:
    """What was found wrong on the way.

    `bad` the first things that are no events, `more_bad` how many more there are; `foreign` where the bytes
    of another trace begin, `foreign_events` how many of its events were left out; `guessed` events in which a
    backslash was taken for itself, with the first one's place;
    `replaced` bytes that were not UTF-8, in `replaced_names` names among others. `closed`: the list's end was
    read; `searching`: the text begins inside something torn.
    """

    def __init__(self) -> None:
        self.bad: list[Bad] = []
        self.more_bad = 0
        self.foreign: int | None = None
        self.foreign_events = 0
        self.guessed = 0
        self.first_guess = 0
        self.replaced = 0
        self.replaced_names = 0
        self.closed = False
        self.searching = False
        #: Where in the content the text given to `read` begins.
        self.base = 0
        self._guesses = _GUESSES
        #: Where in the content the last thing that was set aside begins.
        self._torn_at = 0

    @property
    def is_astray(self) -> bool:
        """Whether what comes next is no event of this trace, as far as is known."""
        return self.searching or self.foreign is not None

    def read(self, piece: bytes, *, last: bool, full: bool) -> tuple[list[TraceEvent], int]:
        """The events of `piece`, and the position behind what was read of it.

        `last`: nothing follows it. `full`: an event that does not end in it is given up.
        """
        text = piece.decode("latin-1")
        events: list[TraceEvent] = []
        at = 0
        while True:
            step = (
                self._search(text, at, last=last, full=full) if self.searching else skip_separators(text, at)
            )
            at = step
            if self.searching or at >= len(text):
                return events, at
            if text[at] == "]":
                self.closed = True
                return events, at + 1
            try:
                at = self._read_value(piece, text, at, events, last=last)
            except ScanError as error:
                if error.is_open and not full:
                    resumed = self._find_clean_rest(text, at) if last else None
                    if resumed is None:
                        return events, at
                    self._set_aside(at, "it has no end, and events begin inside it")
                    at = resumed
                else:
                    self._set_aside(
                        at, f"no event ends within {len(text)} bytes" if error.is_open else str(error)
                    )
                    self.searching = True
                    at = error.position

    def _read_value(self, piece: bytes, text: str, at: int, events: list[TraceEvent], *, last: bool) -> int:
        """Takes the value at `at`, and gives the position behind it. Raises `ScanError`."""
        try:
            end = value_end(text, at)
        except ScanError as error:
            if error.is_open and not last:
                raise
            event, end = self._repair(text, at)
            self._give(event, events)
            return end
        if text[at] != "{":
            self._check_item(text, end, last=last)
            self._set_aside(at, "no JSON object")
            return end
        content, replaced, names = mend_utf8(piece[at:end])
        self.replaced += replaced
        self.replaced_names += names
        try:
            event = decode_one(content)
        except (msgspec.DecodeError, RecursionError):
            try:
                event, _ = self._repair(text, at)
            except ScanError as error:
                self._set_aside(at, str(error))
                return end
        self._give(event, events)
        return end

    def _repair(self, text: str, at: int) -> tuple[TraceEvent, int]:
        content, end, guessed = repair(text, at)
        try:
            event = decode_one(mend_utf8(content).text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ScanError(end, str(error)) from error
        if guessed:
            if not self.guessed:
                self.first_guess = self.base + at
            self.guessed += 1
        return event, end

    def _give(self, event: TraceEvent, events: list[TraceEvent]) -> None:
        # Those of another trace would get this one's rank and clock.
        if self.foreign is None:
            events.append(event)
        else:
            self.foreign_events += 1

    def _check_item(self, text: str, end: int, *, last: bool) -> None:
        """Raises `ScanError` where something that is no object is not the whole of an item."""
        after = skip_space(text, end)
        if after >= len(text):
            if not last:
                raise ScanError(end, "it has no end", is_open=True)
        elif text[after] not in ",]":
            raise ScanError(end, "no JSON object, and torn")

    def _set_aside(self, at: int, reason: str) -> None:
        self._torn_at = self.base + at
        if len(self.bad) < _KEPT:
            self.bad.append(Bad(self.base + at, reason))
        else:
            self.more_bad += 1

    def _search(self, text: str, at: int, *, last: bool, full: bool) -> int:
        """Where the next event begins, or the list ends; while there is neither, `searching` stays true."""
        position = at
        while match := _CANDIDATE.search(text, position):
            begin = match.end() - 1
            try:
                if self._is_event(text, begin):
                    self._found(text, begin)
                    return begin
                position = begin + 1
            except ScanError as error:
                if not error.is_open:
                    position = max(error.position, begin + 1)
                elif not last and not full:
                    return match.start()
                else:
                    position = begin + 1
                    self._guesses -= 1
                    if self._guesses < 0:
                        return len(text)
        if not last:
            return max(at, len(text) - _OVERLAP)
        for match in _LIST_END.finditer(text, at):
            if self._guesses > 0 and _ends_cleanly(text, match.end()):
                self._found(text, match.end() - 1)
                return match.end() - 1
            self._guesses -= 1
        return len(text)

    def _found(self, text: str, at: int) -> None:
        """Reading goes on at `at`; whether that is in another trace's list can be seen before it."""
        self.searching = False
        if self.foreign is None:
            match = _FOREIGN.search(text, max(0, self._torn_at - self.base), at)
            if match:
                self.foreign = self.base + match.start()

    def _is_event(self, text: str, at: int) -> bool:
        """Whether the object at `at` says what kind of event it is. Raises `ScanError`."""
        content = text[at : value_end(text, at)]
        if '"ph"' not in content:
            return False
        try:
            return bool(decode_one(repair(content, 0).text).ph)
        except (msgspec.DecodeError, RecursionError, ScanError):
            return False

    def _find_clean_rest(self, text: str, at: int) -> int | None:
        """The first event inside an unfinished one from which all is well up to the end of the file.

        Then a bracket is missing. There is none where the file was cut, which is the usual reason.
        """
        if not text.rstrip(" \t\r\n").endswith(("]", "}")):
            return None
        for match in _CANDIDATE.finditer(text, at + 1):
            self._guesses -= 1
            if self._guesses < 0:
                return None
            if self._is_clean(text, match.end() - 1):
                return match.end() - 1
        return None

    def _is_clean(self, text: str, at: int) -> bool:
        try:
            while at < len(text) and text[at] == "{":
                if not self._is_event(text, at):
                    return False
                at = skip_separators(text, value_end(text, at))
        except ScanError:
            return False
        return text.startswith("]", at) and _ends_cleanly(text, at + 1)


def _ends_cleanly(text: str, at: int) -> bool:
    """Whether behind a list's end there is nothing but other keys and the object's end."""
    members = Members()
    if skip_space(text, at) < len(text):
        stop, at = members.read(text, at, last=True)
        if stop is not Stop.END or members.lost:
            return False
    return skip_space(text, at) == len(text)
