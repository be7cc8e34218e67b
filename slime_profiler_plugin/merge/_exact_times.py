"""Times as they are spelled in traces, to exact ns, many at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec import UNSET, Raw, UnsetType

from slime_profiler_plugin.clock import decimal_us_to_ns

from ._kinds import Bools, Ints

#: Numbers beyond are this one: it is beyond the clock as well.
_FARTHEST_NS: Final = 2**63 - 1
_NUMBER: Final = re.compile(rb"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_COMMA, _DOT, _MINUS = b",.-"
#: Numbers of as many characters, dot and sign included, fit 64 bits whatever they are multiplied by here.
_MOST_CHARACTERS: Final = 17
#: As many digits without a dot do not, when they become ns.
_TOO_MANY_DIGITS: Final = 16
_SCALES: Final = np.array([1000, 100, 10, 1], dtype=np.int64)


class Times(NamedTuple):
    """Times in ns; which of them are known at all (0 stands for the others); whether all that were given are
    plain numbers of at most three decimals.
    """

    values: Ints
    are_known: Bools
    are_plain: bool


def parse_times(texts: Sequence[Raw | UnsetType]) -> Times:
    """Decimal microseconds to ns, exact; digits below 1 ns are rounded as `clock.decimal_us_to_ns` does.

    >>> times = parse_times([Raw(b"1.5"), UNSET, Raw(b"5115426478563.779"), Raw(b"-2")])
    >>> times.values.tolist(), times.are_known.tolist()
    ([1500, 0, 5115426478563779, -2000], [True, False, True, True])
    """
    given = [text for text in texts if text is not UNSET]
    are_all_given = len(given) == len(texts)
    if not given:
        return Times(np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_), are_plain=True)
    values = _parse_plain(b",".join(given), len(given))
    known = np.ones(len(given), np.bool_)
    are_plain = values is not None
    if values is None:
        parsed = [_parse_one(text) for text in given]
        known = np.array([value is not None for value in parsed])
        values = np.array([value or 0 for value in parsed], dtype=np.int64)
    if are_all_given:
        return Times(values, known, are_plain)
    places = np.array([index for index, text in enumerate(texts) if text is not UNSET])
    all_values, all_known = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    all_values[places], all_known[places] = values, known
    return Times(all_values, all_known, are_plain)


def _parse_plain(text: bytes, count: int) -> Ints | None:
    """Numbers of at most three decimals, joined by commas; ``None`` where any is of another form.

    Without its dot each is a whole number, to be scaled by as many digits as it lacks of three.
    """
    if text.translate(None, b"0123456789,.-"):
        return None
    marks = np.frombuffer(text + b",", np.uint8)
    ends = np.flatnonzero(marks == _COMMA)
    dots = np.flatnonzero(marks == _DOT)
    lengths = np.diff(ends, prepend=-1) - 1
    if len(ends) != count or int(lengths.min()) < 1 or int(lengths.max()) > _MOST_CHARACTERS:
        return None
    starts = ends - lengths
    if b"-" in text and not np.isin(np.flatnonzero(marks == _MINUS), starts).all():
        return None
    decimals = np.zeros(count, np.int64)
    if len(dots) == count and bool((ends - dots == 4).all()):  # as torch.profiler writes them
        decimals[:] = 3
    elif len(dots):
        owners = np.searchsorted(ends, dots)
        decimals[owners] = ends[owners] - dots - 1
        if int(decimals[owners].min()) < 1 or int(decimals.max()) > 3:
            return None
        if not (owners[:-1] < owners[1:]).all():
            return None
    if int(lengths[decimals == 0].max(initial=0)) >= _TOO_MANY_DIGITS:
        return None
    try:
        whole = np.fromstring(text.replace(b".", b""), np.int64, sep=",")
    except ValueError:
        return None
    if len(whole) != count:
        return None
    scaled: Ints = whole * _SCALES[decimals]
    return scaled


def _parse_one(text: Raw | UnsetType) -> int | None:
    number = bytes(text).strip(b'"')  # type: ignore[arg-type]
    try:
        value = decimal_us_to_ns(number)
    except ValueError:
        if not _NUMBER.fullmatch(number):
            return None
        value = 0 if abs(float(number)) < 1 else -_FARTHEST_NS if number.startswith(b"-") else _FARTHEST_NS
    return max(-_FARTHEST_NS, min(value, _FARTHEST_NS))
