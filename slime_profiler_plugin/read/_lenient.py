"""An event that is no strict JSON, but says what it means."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from ._events import TraceEvent, decode_one
from ._repair import repair, repair_tokens
from ._scan import ScanError
from ._text import mend_utf8

#: Strings and numbers alone are mended in events of at most this size.
_LARGEST: Final = 1 << 20


class LenientEvent(NamedTuple):
    """An event; `end` is where its text ended, `guessed` that a backslash was taken for itself."""

    event: TraceEvent
    end: int
    guessed: bool


def decode_leniently(text: str, at: int, end: int | None) -> LenientEvent:
    """The event that begins at `at` and ends at `end`, where that is known.

    Raises `ScanError` where it does not say what it means.
    """
    if end is not None and end - at <= _LARGEST:
        content, _, guessed = repair_tokens(text[at:end])
        try:
            return LenientEvent(decode_one(mend_utf8(content).text), end, guessed)
        except (msgspec.DecodeError, RecursionError):
            pass
    content, end, guessed = repair(text, at)
    try:
        return LenientEvent(decode_one(mend_utf8(content).text), end, guessed)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ScanError(end, str(error)) from error
