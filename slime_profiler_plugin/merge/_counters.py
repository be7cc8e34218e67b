"""Values of counters, such that Perfetto's importer (v52) takes them.

It counts an error for a value that is no number, and for a counter without args; a whole number beyond 64
bits it shows as another one, and a number beyond a double's range stops it altogether.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

import msgspec

_PLAIN: Final = msgspec.json.Decoder(dict[str, float])
_ENCODER: Final = msgspec.json.Encoder()
#: Words that are a decimal number to C, which is more than JSON takes: ``+.5``.
_NUMBER: Final = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
#: A double holds every whole number below.
_EXACT: Final = 2**53


def read_counter(args: bytes) -> tuple[bytes, int]:
    """The args of a counter as they are written, and how many values they have.

    What is fine is given as it stands. Words that are a number become one; any other value is left out.

    >>> read_counter(b'{"a": 3}'), read_counter(b'{"a": "+.5", "b": null, "c": 1e999}'), read_counter(b"")
    ((b'{"a": 3}', 1), (b'{"a":0.5}', 1), (b'{}', 0))
    """
    try:
        plain = _PLAIN.decode(args)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _mend(args)
    if all(-_EXACT < value < _EXACT for value in plain.values()):
        return args, len(plain)
    return _mend(args)


def _mend(args: bytes) -> tuple[bytes, int]:
    try:
        found = json.loads(args)
    except (ValueError, RecursionError):
        found = None
    numbers = {k: _number(v) for k, v in found.items()} if isinstance(found, dict) else {}
    values = {key: value for key, value in numbers.items() if value is not None}
    return _ENCODER.encode(values), len(values)


def _number(value: Any) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
