"""Bytes that should be UTF-8."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_BAD: Final = re.compile("[\udc80-\udcff]")
_BAD_NAME: Final = re.compile(
    '"name"[ \\t\\r\\n]*:[ \\t\\r\\n]*"[^"\\\\\udc80-\udcff]*(?:\\\\.[^"\\\\\udc80-\udcff]*)*[\udc80-\udcff]'
)


class Mended(NamedTuple):
    """`text` as UTF-8; how many of its bytes were replaced by U+FFFD, and how many names had such bytes."""

    text: bytes
    replaced: int
    names: int


def mend_utf8(text: bytes) -> Mended:
    """`text` with every byte that is not UTF-8 replaced by U+FFFD, and no other.

    >>> mend_utf8(b'{"name": "caf\\xe9\\xff_end"}')[1:]
    (2, 1)
    """
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            marked = text.decode("utf-8", "surrogateescape")
            good, count = _BAD.subn("\ufffd", marked)
            return Mended(good.encode(), count, len(_BAD_NAME.findall(marked)))
    return Mended(text, 0, 0)
