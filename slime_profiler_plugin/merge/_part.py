"""Parts of an output that are written side by side and become one file.

A compressed part is a deflate stream without its end. One after the other they are a single stream, since
each ends on a byte, and a single gzip member with the checksum that follows from theirs: several members are
allowed (RFC 1952), but more than some viewers read.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec
from isal import isal_zlib

_LEVEL: Final = 1
#: Deflate without a header of its own.
_RAW_WINDOW: Final = -15
_BUFFER: Final = 1 << 20
#: A string whose last character is a backslash. Perfetto's importer (v52) takes the quote behind it for
#: an escaped one and gives up on the whole file; spelled as a code point it loads.
_LAST_BACKSLASH: Final = re.compile(rb'(?<!\\)((?:\\\\)*)\\\\"')
#: CRC-32 of RFC 1952, least significant bit first.
_POLYNOMIAL: Final = 0xEDB88320
_ONE: Final = 1 << 31

#: No name and no time: equal inputs give equal files.
GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"


class Part(NamedTuple):
    """A written part: `size` bytes of text with that `checksum` (CRC-32)."""

    size: int
    checksum: int


class PartWriter:
    """Writes one part to `file`; `compress` makes it a deflate stream without an end."""

    def __init__(self, file: BinaryIO, *, compress: bool) -> None:
        self._file = file
        self._engine: Any = (
            isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _RAW_WINDOW) if compress else None
        )
        self._pending = bytearray()
        self._size = 0
        self._checksum = 0

    def write(self, text: bytes) -> None:
        """Append text that is cut between two JSON values."""
        self._pending += text
        if len(self._pending) >= _BUFFER:
            self._flush()

    def write_events(self, encoder: msgspec.json.Encoder, events: list[Any]) -> None:
        """Append events, with a comma before the first: encoded where they will stand."""
        at = len(self._pending)
        encoder.encode_into(events, self._pending, at)
        self._pending[at : at + 1] = b",\n"  # for the bracket of the list
        del self._pending[-1]
        if len(self._pending) >= _BUFFER:
            self._flush()

    def _flush(self) -> None:
        text: bytes | bytearray = self._pending
        if b"\\" in text:
            text = spell_backslashes(bytes(text))
        self._pending = bytearray()
        self._size += len(text)
        if self._engine is None:
            self._file.write(text)
        else:
            self._checksum = isal_zlib.crc32(text, self._checksum)
            self._file.write(self._engine.compress(text))

    def finish(self) -> Part:
        """The part, whole; the file stays open."""
        self._flush()
        if self._engine is not None:
            self._file.write(self._engine.flush(isal_zlib.Z_FULL_FLUSH))
        return Part(self._size, self._checksum)


def end_stream() -> bytes:
    """What ends a deflate stream made of parts: an empty last block."""
    return isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _RAW_WINDOW).flush(isal_zlib.Z_FINISH)


def gzip_trailer(parts: Iterable[Part]) -> bytes:
    """Checksum and size of all parts, as a gzip member ends."""
    checksum = size = 0
    for part in parts:
        checksum = join_checksums(checksum, part.checksum, part.size)
        size += part.size
    return checksum.to_bytes(4, "little") + (size % 2**32).to_bytes(4, "little")


def join_checksums(first: int, second: int, size: int) -> int:
    """The CRC-32 of two texts in a row from those of each; `size` is that of the second, in bytes.

    A text is a polynomial over two elements and its CRC the rest by the CRC's own; to put `size` bytes behind
    it is to multiply with x to the power of 8 `size`.

    >>> import zlib
    >>> join_checksums(zlib.crc32(b"one "), zlib.crc32(b"file"), 4) == zlib.crc32(b"one file")
    True
    """
    power, square, bits = _ONE, _ONE >> 1, 8 * size
    while bits:
        if bits & 1:
            power = _multiply(power, square)
        square = _multiply(square, square)
        bits >>= 1
    return _multiply(first, power) ^ second


def _multiply(one: int, other: int) -> int:
    product = 0
    for place in range(31, -1, -1):
        if one >> place & 1:
            product ^= other
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return product


def spell_backslashes(text: bytes) -> bytes:
    """`text`, JSON cut between two values, with the last backslash of a string as ``\\u005c``."""
    if b"\\" not in text or b'\\\\"' not in text:
        return text
    return _LAST_BACKSLASH.sub(rb'\1\\u005c"', text)


def append_file(target: BinaryIO, path: Path) -> None:
    """Append the content of `path`, which is removed."""
    with path.open("rb") as source:
        shutil.copyfileobj(source, target, _BUFFER)
    path.unlink()
