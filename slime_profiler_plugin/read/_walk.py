"""Going through a list of events value by value: for text that does not decode at once.

What is no event is set aside and told with its place, and reading goes on at the next that is one. Every
byte is looked at a bounded number of times.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from ._events import TraceEvent, decode_one
from ._lenient import decode_leniently
from ._resume import (
    BORDER,
    CANDIDATE,
    FOREIGN,
    LIST_END,
    begins_events,
    ends_cleanly,
    is_clean,
    is_event,
    is_list_end,
    may_be_list_end,
    step_back,
)
from ._scan import ScanError, skip_separators, skip_space, value_end
from ._text import mend_utf8

#: Bad events kept with their reasons; the rest are only counted.
_KEPT: Final = 20
#: Text kept back while an event is looked for, for what looks for it may lie across a block's end.
_OVERLAP: Final = 1 << 16
#: Brackets that are tried for the end of the list.
_TRIES: Final = 64
#: Guesses at where reading may go on, each of which costs a look at all the rest.
_GUESSES: Final = 8
#: What each event has.
_PH: Final = re.compile(r'"ph"[ \t\r\n]*:')
#: What is looked for in text up to a border may reach so far beyond.
_BEYOND: Final = 64


class Bad(NamedTuple):
    """Something in the list that is no event: where it begins, what is wrong, how many events it was.

    Events that follow it and are no better belong to it: each would need an entry of its own.
    """

    position: int
    reason: str
    lost: int


class Walk:
    """What was found wrong on the way.

    `bad` the first things that are no events, `more_bad` how many events the rest were; `foreign` where the
    bytes of another trace begin, `foreign_events` how many of its events were left out; `guessed` events in
    which a backslash was taken for itself, `repaired` others that were no strict JSON and say what they mean,
    each with the first one's place; `replaced` bytes that were not UTF-8,
    in `replaced_names` names among others. `closed`: the list's end was read; `searching`: the text begins
    inside something torn.
    """

    def __init__(self) -> None:
        self.bad: list[Bad] = []
        self.more_bad = 0
        self.foreign: int | None = None
        self.foreign_events = 0
        self.guessed = 0
        self.first_guess = 0
        self.repaired = 0
        self.first_repair = 0
        self.replaced = 0
        self.replaced_names = 0
        self.closed = False
        self.searching = False
        #: Where in the content the text given to `read` begins.
        self.base = 0
        self._guesses = _GUESSES
        #: Whether reading went on behind something torn, and nothing has shown yet that it was right to.
        self.resumed = False
        #: Before which event of this text that was.
        self._resumed_at = 0
        #: Where in the content the last thing that was set aside begins.
        self._torn_at = 0
        #: How many events begin in what was set aside last, and whether its last object is one of them.
        self._torn_events = 0
        self._is_counted = False

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
        self._resumed_at = 0
        at = 0
        while True:
            if self.searching:
                at = self._search(text, at, len(events), last=last, full=full)
                if self.searching:  # what stands before an event is a part of how it is found
                    return events, at
            at = skip_separators(text, at)
            if at >= len(text):
                return events, at
            if text[at] == "]":
                is_end = may_be_list_end(text, at + 1, last=last)
                if is_end and self.resumed:
                    is_end = is_list_end(text, at + 1, last=last)
                if is_end is None and not full:
                    return events, at
                if is_end is not False:
                    self.closed = True
                    return events, at + 1
                if not self.resumed:
                    self._set_aside(at, "a bracket that ends no list", lost=0)
                    at += 1
                    continue
                # What was taken for events was a list inside the torn one.
                del events[self._resumed_at :]
                self.searching = True
                at += 1
                continue
            if text[at] == "[" and begins_events(text, at + 1):
                self._set_aside(at, "a bracket that begins no list", lost=0)
                at += 1
                continue
            try:
                at = self._read_value(piece, text, at, events, last=last)
            except ScanError as error:
                if error.is_open and not full:
                    resumed = self._find_clean_rest(text, at) if last else None
                    if resumed is None:
                        return events, at
                    self._set_aside(at, "it has no end, and events begin inside it")
                    self._skip(text, at, resumed)
                    at = resumed
                else:
                    self._set_aside(
                        at, f"no event ends within {len(text)} bytes" if error.is_open else str(error)
                    )
                    self.searching = True
                    behind = step_back(text, error.position, at + 1)
                    self._skip(text, at, behind)
                    at = behind

    def _read_value(self, piece: bytes, text: str, at: int, events: list[TraceEvent], *, last: bool) -> int:
        """Takes the value at `at`, and gives the position behind it. Raises `ScanError`."""
        try:
            end = value_end(text, at)
        except ScanError as error:
            if error.is_open and not last:
                raise
            return self._mend(text, at, None, events)
        if text[at] != "{":
            self._check_item(text, end, last=last)
            self._set_aside(at, "no JSON object", lost=max(1, len(_PH.findall(text, at, end))))
            return end
        content, replaced, names = mend_utf8(piece[at:end])
        self.replaced += replaced
        self.replaced_names += names
        try:
            self._give(decode_one(content), events)
        except (msgspec.DecodeError, RecursionError):
            try:
                self._mend(text, at, end, events)
            except ScanError as error:
                self._set_aside(at, str(error))
        return end

    def _mend(self, text: str, at: int, end: int | None, events: list[TraceEvent]) -> int:
        event, end, guessed = decode_leniently(text, at, end)
        if guessed:
            if not self.guessed:
                self.first_guess = self.base + at
            self.guessed += 1
        else:
            if not self.repaired:
                self.first_repair = self.base + at
            self.repaired += 1
        self._give(event, events)
        return end

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

    def _set_aside(self, at: int, reason: str, lost: int = 1) -> None:
        self._torn_at = self.base + at
        self._torn_events = 0
        self._is_counted = False
        if len(self.bad) < _KEPT:
            self.bad.append(Bad(self.base + at, reason, lost))
        else:
            self.more_bad += lost

    def _skip(self, text: str, at: int, end: int) -> None:
        """What was set aside last goes on from `at` to `end`: with it go the events that begin there."""
        beyond = end + (_BEYOND if self.searching else 0)  # else an event begins at the end
        before = max(1, self._torn_events)
        while at < end:
            # An object's first kind makes it an event, others belong to what is inside it.
            found = (BORDER if self._is_counted else _PH).search(text, at, beyond)
            if found is None or found.start() >= end:
                break
            self._torn_events += not self._is_counted
            self._is_counted = not self._is_counted
            at = found.end()
        more = max(1, self._torn_events) - before
        if more and self.more_bad:
            self.more_bad += more
        elif more:
            self.bad[-1] = self.bad[-1]._replace(lost=self.bad[-1].lost + more)

    def _search(self, text: str, at: int, count: int, *, last: bool, full: bool) -> int:
        """Where the next event begins, or the list ends; while there is neither, `searching` stays true.

        `count`: events that were read from this text.
        """
        found = self._find_event(text, at, count, last=last, full=full)
        self._skip(text, at, found)
        return found

    def _find_event(self, text: str, at: int, count: int, *, last: bool, full: bool) -> int:
        position = at
        while match := CANDIDATE.search(text, position):
            begin = match.end() - 1
            try:
                if is_event(text, begin):
                    self._found(text, begin)
                    self.resumed, self._resumed_at = True, count
                    return begin
                position = begin + 1
            except ScanError as error:
                if not error.is_open:
                    position = step_back(text, max(error.position, begin + 1), begin + 1)
                elif not last and not full:
                    return match.start()
                else:
                    position = begin + 1
                    self._guesses -= 1
                    if self._guesses < 0:
                        return len(text)
        if not last:
            return max(at, len(text) - _OVERLAP)
        tries = _TRIES
        for match in LIST_END.finditer(text, max(0, self._torn_at - self.base) + 1):
            if tries > 0 and ends_cleanly(text, match.end()):
                self._found(text, match.start())
                return match.start()
            tries -= 1
        return len(text)

    def _found(self, text: str, at: int) -> None:
        """Reading goes on at `at`; whether that is in another trace's list can be seen before it."""
        self.searching = False
        if self.foreign is None:
            match = FOREIGN.search(text, max(0, self._torn_at - self.base), at)
            if match:
                self.foreign = self.base + match.start()

    def _find_clean_rest(self, text: str, at: int) -> int | None:
        """The first event inside an unfinished one from which all is well up to the end of the file.

        Then a bracket is missing. There is none where the file was cut, which is the usual reason.
        """
        if not text.rstrip(" \t\r\n").endswith(("]", "}")):
            return None
        for match in CANDIDATE.finditer(text, at + 1):
            self._guesses -= 1
            if self._guesses < 0:
                return None
            if is_clean(text, match.end() - 1):
                return match.end() - 1
        return None
