"""Where reading may go on behind an event that is torn.

Objects inside the torn event look like events too. One that says its kind (``ph``) is taken for one, until
the list it is in turns out to be inside something.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ._events import decode_one
from ._members import Members, Stop
from ._repair import repair
from ._scan import ScanError, skip_separators, skip_space, value_end

#: Where an object of a list may begin, also of another trace's. It begins with a set, for which a search is
#: three times as fast as for alternatives.
BORDER: Final = re.compile(r'[,}"](?:(?<!")[ \t\r\n]*|(?<=")traceEvents"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*)\{')
#: Where an event may begin: an object without any string says no kind, and is not worth a parser.
CANDIDATE: Final = re.compile(BORDER.pattern + r'(?![^{}"]*\})')
LIST_END: Final = re.compile(r'\][ \t\r\n]*(?=,[ \t\r\n]*"|\}[ \t\r\n]*$|$)')
FOREIGN: Final = re.compile(r'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[')


#: What of an event a parser that went astray may have taken for a part of something else.
_BEGUN: Final = re.compile(r'[,}][ \t\r\n]*(?:\{[ \t\r\n]*"?)?[ \t\r\n]*$')
_FARTHEST_BACK: Final = 256


def step_back(text: str, at: int, least: int) -> int:
    """Where to look for an event from, when a parser got to `at`: not before `least`.

    >>> step_back('{"name": "no end, {"ph": "X"}', 20, 1)
    16
    """
    match = _BEGUN.search(text, max(least, at - _FARTHEST_BACK), at)
    return match.start() if match else at


def is_event(text: str, at: int) -> bool:
    """Whether the object at `at` says what kind of event it is. Raises `ScanError`."""
    content = text[at : value_end(text, at)]
    if '"ph"' not in content:
        return False
    try:
        return bool(decode_one(repair(content, 0).text).ph)
    except (msgspec.DecodeError, RecursionError, ScanError):
        return False


def begins_events(text: str, at: int) -> bool:
    """Whether an event begins at `at`, behind a bracket that should not be there."""
    at = skip_space(text, at)
    try:
        return text.startswith("{", at) and is_event(text, at)
    except ScanError:
        return False


def is_clean(text: str, at: int) -> bool:
    """Whether from the event at `at` on all is well up to the end of the file."""
    try:
        while at < len(text) and text[at] == "{":
            if not is_event(text, at):
                return False
            at = skip_separators(text, value_end(text, at))
    except ScanError:
        return False
    return text.startswith("]", at) and ends_cleanly(text, at + 1)


def ends_cleanly(text: str, at: int) -> bool:
    """Whether behind a list's end there is nothing but other keys and the object's end."""
    members = Members()
    if skip_space(text, at) < len(text):
        stop, at = members.read(text, at, last=True)
        if stop is not Stop.END or members.lost:
            return False
    return skip_space(text, at) == len(text)


def may_be_list_end(text: str, at: int, *, last: bool) -> bool | None:
    """Whether the bracket before `at` may end the list of events, by what follows it.

    ``None``: nothing follows yet.
    """
    border = skip_separators(text, at)
    if border == len(text):
        return True if last else None
    is_parted = "," in text[at:border]
    return text[border] not in "{[]" if not is_parted else text[border] in '"}'


def is_list_end(text: str, at: int, *, last: bool) -> bool | None:
    """Whether the bracket before `at` ends the list of events, ``None`` where the text does not say.

    Behind the end of a list inside an event, more events follow.
    """
    stop, at = Members().read(text, at, last=last)
    if stop is Stop.END:
        is_all = skip_space(text, at) == len(text)
        return is_all if last or not is_all else None
    return True if last else None
