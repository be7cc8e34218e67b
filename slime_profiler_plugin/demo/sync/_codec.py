"""The difference of two versions of a tensor, small enough to be worth sending."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

#: A tensor's memory, byte by byte.
Bytes: TypeAlias = "NDArray[np.uint8]"
#: isal declares it as an instance, not as the class it is.
_ISAL_ERROR: Final[type[Exception]] = isal_zlib.error  # type: ignore[assignment]


def group_bytes(data: Bytes, width: int) -> Bytes:
    """All first bytes of the elements, then all second ones, …; `width` is an element's bytes.

    Sign and exponent hardly change from one version to the next, so after the exclusive or they are zeros;
    brought together they cost next to nothing. The lowest byte comes first in memory:

    >>> old, new = np.array([1.0, -2.0], "<f4"), np.array([1.5, -2.5], "<f4")
    >>> difference = old.view(np.uint8) ^ new.view(np.uint8)
    >>> bytes(difference).hex(" ", 4), bytes(group_bytes(difference, 4)).hex(" ", 2)
    ('00004000 00002000', '0000 0000 4020 0000')
    """
    return np.ascontiguousarray(data.reshape(-1, width).T).reshape(-1)


def encode_difference(old: Bytes, new: Bytes, width: int) -> bytes:
    """What turns `old` into `new`, which are as long: exclusive or, grouped, deflated."""
    encoded: bytes = isal_zlib.compress(group_bytes(old ^ new, width).tobytes())
    return encoded


def decode_difference(old: Bytes, encoded: Any, width: int) -> Bytes:
    """The `new` that was encoded; `encoded` is anything with a buffer.

    Raises `ValueError` when it is torn, or is not the difference of something as long as `old`.
    """
    try:
        grouped = np.frombuffer(isal_zlib.decompress(encoded), np.uint8)
    except _ISAL_ERROR as error:
        raise ValueError(f"not a whole difference: {error}") from error
    if grouped.size != old.size:
        raise ValueError(f"a difference of {grouped.size} bytes, where {old.size} are wanted")
    new: Bytes = old ^ grouped.reshape(width, -1).T.reshape(-1)
    return new
