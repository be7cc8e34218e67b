"""Bytes of a file, compressed or not, as far as they can be read."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from isal import isal_zlib

#: Content comes in blocks of at most this size, however well it was compressed.
_BLOCK: Final = 1 << 16
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
#: isal declares it as an instance, not as the class it is.
_ISAL_ERROR: Final[type[Exception]] = isal_zlib.error  # type: ignore[assignment]
_SMALL_STEP: Final = 256


class Damage(NamedTuple):
    """Something in `file` that could not be read as it should.

    `kind`: ``truncated`` (the end is missing), ``corrupt`` (bytes that are not what they should
    be), ``refused`` (nothing of the file was used), ``missing``, ``differs`` (two copies that disagree),
    ``replaced`` (bytes that were no text stand as U+FFFD), ``unread`` (whole, but of a kind that this package
    does not read: told, and no loss).
    `lost` counts lines or events known to be lost.
    """

    file: str
    kind: str
    reason: str
    line: int | None = None
    lost: int = 0

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line is not None else self.file
        return f"{where}: {self.kind}: {self.reason}"


class ReadError(ValueError):
    """A file or folder cannot be read at all; the message names it and says why."""


class VanishedError(ReadError):
    """A file that was there is gone: the run is being recorded, and a file got its final name."""


def read_blocks(
    path: Path, damage: list[Damage], limit: int | None = None, inode: int | None = None
) -> Iterator[bytes]:
    """The content of `path` in blocks, decompressed when it is gzip (by its first bytes).

    With `limit`, only that many bytes of the file: what is appended later is not seen.
    A compressed file that was cut or damaged is given up to there, and that is added to
    `damage`. Raises `ReadError` when the file cannot be opened or read, `VanishedError` when there is
    none of that name, or with `inode` another one.
    """
    try:
        with path.open("rb") as stream:
            if inode not in (None, os.fstat(stream.fileno()).st_ino):
                raise VanishedError(f"{path}: another file has the name now")
            raw = _read_raw(stream, limit)
            first = next(raw, b"")
            raw = chain((first,), raw)
            if first.startswith(_GZIP_MAGIC) or (path.suffix == ".gz" and first):
                yield from _decompress(path, raw, damage)
            else:
                yield from filter(None, raw)
    except OSError as error:
        gone = isinstance(error, FileNotFoundError) and not os.path.lexists(path)
        raise (VanishedError if gone else ReadError)(f"{path}: {error.strerror or error}") from error


def pick_longest(paths: list[Path], damage: list[Damage]) -> Path:
    """Of several copies of one growing file, the one with the longest readable content.

    A copy that is no prefix of it is added to `damage`: then they are not copies.
    """
    lengths = {path: _content_length(path, damage) for path in paths}
    longest = max(paths, key=lambda path: lengths[path])
    for path in paths:
        if path is longest or lengths[path] < 0:
            continue
        at = _first_difference(path, longest)
        if at is not None:
            damage.append(
                Damage(str(path), "differs", f"is no copy of {longest}, which is used: byte {at} differs")
            )
    return longest


def _read_raw(stream: BinaryIO, limit: int | None) -> Iterator[bytes]:
    left = _BLOCK if limit is None else limit
    while block := stream.read(min(_BLOCK, left)):
        yield block
        if limit is not None:
            left -= len(block)


def _decompress(path: Path, raw: Iterator[bytes], damage: list[Damage]) -> Iterator[bytes]:
    engine = isal_zlib.decompressobj(_GZIP_WINDOW)
    given = 0
    for compressed in raw:
        data = compressed
        while data:
            if engine.eof:
                # Several members in a row are one file; zeros between them are padding.
                data = data.lstrip(b"\0")
                if not data:
                    break
                engine = isal_zlib.decompressobj(_GZIP_WINDOW)
            try:
                content = engine.decompress(data, _BLOCK)
            except _ISAL_ERROR as error:
                damage.append(Damage(str(path), "corrupt", f"gzip: {error}"))
                yield from _decompress_until_error(path, given)
                return
            if content:
                given += len(content)
                yield content
            data = engine.unused_data if engine.eof else engine.unconsumed_tail
    if not engine.eof:
        damage.append(Damage(str(path), "truncated", "the gzip stream has no end"))


def _decompress_until_error(path: Path, skip: int) -> Iterator[bytes]:
    """What can be had before the damage, less the first `skip` bytes.

    The fast engine gives nothing of the block in which it fails; this one goes in small steps.
    """
    engine = zlib.decompressobj(_GZIP_WINDOW)
    with path.open("rb") as stream:
        while data := stream.read(_SMALL_STEP):
            while data:
                if engine.eof:
                    engine = zlib.decompressobj(_GZIP_WINDOW)
                try:
                    content = engine.decompress(data)
                except zlib.error:
                    return
                data = engine.unused_data if engine.eof else b""
                if skip < len(content):
                    yield content[skip:]
                skip = max(0, skip - len(content))


def _content_length(path: Path, damage: list[Damage]) -> int:
    """Bytes of content; -1 for a file that cannot be read, which is added to `damage`."""
    try:
        return sum(map(len, read_blocks(path, [])))
    except VanishedError:
        raise
    except ReadError as error:
        damage.append(Damage(str(path), "refused", str(error).removeprefix(f"{path}: ")))
        return -1


def _first_difference(shorter: Path, longer: Path) -> int | None:
    """Position of the first byte where `shorter` is no prefix of `longer`."""
    others = read_blocks(longer, [])
    pending = b""
    position = 0
    for block in read_blocks(shorter, []):
        while len(pending) < len(block):
            more = next(others, b"")
            if not more:
                return position + len(pending)
            pending += more
        if pending[: len(block)] != block:
            same = next(i for i, (a, b) in enumerate(zip(pending, block, strict=False)) if a != b)
            return position + same
        pending = pending[len(block) :]
        position += len(block)
    return None
