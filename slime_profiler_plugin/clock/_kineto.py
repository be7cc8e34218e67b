"""Times in traces of torch.profiler: decimal microseconds to integer nanoseconds."""

from __future__ import annotations

import re
from typing import Final

_DECIMAL: Final = re.compile(rb"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")


#: 2001: Unix times are later, and times since the start of a machine or a program are less.
EARLIEST_UNIX_NS: Final = 10**18


def ns_to_decimal_us(ns: int) -> str:
    """Microseconds with three decimals, exact.

    >>> ns_to_decimal_us(1_234_567), ns_to_decimal_us(-5)
    ('1234.567', '-0.005')
    """
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def decimal_us_to_ns(text: bytes) -> int:
    """Nanoseconds of a JSON number of microseconds, exact; digits below 1 ns are rounded half away from 0.

    A binary float would be off by up to 250 ns on today's Unix time. Raises `ValueError` for
    what is no number.

    >>> decimal_us_to_ns(b"5115426478563.779"), decimal_us_to_ns(b"12"), decimal_us_to_ns(b"1.5e3")
    (5115426478563779, 12000, 1500000)
    """
    if text[-4:-3] == b".":  # what Kineto writes
        try:
            return int(text[:-4] + text[-3:])
        except ValueError:
            pass
    match = _DECIMAL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a number of microseconds")
    sign, whole, fraction, exponent = match.groups()
    digits = whole + (fraction or b"")
    shift = 3 - len(fraction or b"") + int(exponent or 0)
    if abs(shift) > 40:
        raise ValueError(f"{text[:40]!r} is out of range for a time")
    scale: int = 10 ** abs(shift)
    value = int(digits) * scale if shift >= 0 else (2 * int(digits) + scale) // (2 * scale)
    return -value if sign else value


def kineto_unix_ns(relative_ns: int, base_ns: int | None) -> int:
    """Unix time of a Kineto ``ts`` of `relative_ns` in a file with this ``baseTimeNanoseconds``.

    Without a base the file's times are absolute already.
    """
    return relative_ns + (base_ns or 0)
