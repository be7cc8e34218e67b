"""Times of an Nsight Systems export as a trace says them: exact decimal microseconds."""

from __future__ import annotations

from typing import Final

from msgspec import Raw

#: More than any report lasts; what lies beyond is a damaged number.
MOST_NS: Final = 1 << 62


def microseconds(ns: int) -> Raw:
    """`ns` as JSON text of microseconds; no binary float comes between.

    >>> bytes(microseconds(3000)), bytes(microseconds(-1)), bytes(microseconds(1700000000123456789))
    (b'3.000', b'-0.001', b'1700000000123456.789')
    """
    if ns < 0:
        return Raw(b"-%d.%03d" % divmod(-ns, 1000))
    return Raw(b"%d.%03d" % divmod(ns, 1000))


def as_ns(value: object) -> int | None:
    """`value` as whole ns; ``None`` for what is no time."""
    if type(value) is int:
        return value if -MOST_NS < value < MOST_NS else None
    if isinstance(value, float) and value.is_integer():
        return as_ns(int(value))
    return None
