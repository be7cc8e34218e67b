"""Counters that a viewer takes: of numbers only."""

from __future__ import annotations

import re
from typing import Final

from msgspec import UNSET, Raw

from slime_profiler_plugin.read import TraceEvent

from ._source import decode_members, members

_NUMBER: Final = re.compile(rb'"?-?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|0[xX][0-9a-fA-F]+)"?')
_TRUTH: Final = {b"true": Raw(b"1"), b"false": Raw(b"0")}
_BESIDE: Final = "no_numbers"


def mend_counter(event: TraceEvent) -> bool:
    """Leave only numbers among the values of a counter; whether there was anything else.

    Perfetto reports an error for every other value. What is neither a number nor true or false is moved to a
    key beside ``args``.
    """
    values = None if event.args is UNSET else decode_members(event.args)
    if values is not None and all(map(_NUMBER.fullmatch, map(bytes, values.values()))):
        return False
    others: object = event.args if values is None else {}
    kept: dict[str, Raw] = {}
    if values is not None:
        texts = {key: bytes(value).strip() for key, value in values.items()}
        kept = {key: _TRUTH.get(text, values[key]) for key, text in texts.items() if _is_value(text)}
        others = {key: value for key, value in values.items() if key not in kept}
    event.args = Raw(b"{" + members(kept) + b"}")
    if others is not UNSET and others != {}:
        event.more = {**({} if event.more is UNSET else event.more), _BESIDE: others}
    return True


def _is_value(text: bytes) -> bool:
    return text in _TRUTH or _NUMBER.fullmatch(text) is not None
