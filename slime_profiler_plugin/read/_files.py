"""Bytes of a file, compressed or not, as far as they can be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final

from ._damage import Damage, ReadError, TraceRefusedError, VanishedError
from ._unpack import EMPTY_ZIP_MAGIC, GZIP_MAGIC, ZIP_MAGIC, unpack_gzip, unpack_zip

#: Content comes in blocks of at most this size, however well it was compressed.
_BLOCK: Final = 1 << 16
#: Bytes of the file read at a time: a megabyte of content, as well as traces are compressed.
_RAW_BLOCK: Final = 1 << 18


def read_blocks(
    path: Path,
    damage: list[Damage],
    limit: int | None = None,
    inode: int | None = None,
    *,
    size: int | None = None,
    advance: Callable[[int], object] | None = None,
) -> Iterator[bytes]:
    """The content of `path` in blocks of at most `size`, unpacked if it is gzip or zip (by its first bytes).

    With `limit`, only that many bytes of the file: what is appended later is not seen. `advance` is told how
    many bytes of the file were read since it was told last. A compressed file that was cut or damaged is
    given up to there, and that is added to `damage`. Raises `ReadError` when the file cannot be opened or
    read, `TraceRefusedError` for an archive of several files, and `VanishedError` when there is none of that
    name, or with `inode` another one.
    """
    try:
        with path.open("rb") as stream:
            if inode not in (None, os.fstat(stream.fileno()).st_ino):
                raise VanishedError(f"{path}: another file has the name now")
            yield from _read_content(path, stream, damage, limit, size or _BLOCK, advance)
    except OSError as error:
        gone = isinstance(error, FileNotFoundError) and not os.path.lexists(path)
        raise (VanishedError if gone else ReadError)(f"{path}: {error.strerror or error}") from error


def read_plain_tail(path: Path, size: int) -> bytes | None:
    """The last `size` bytes of a file that is not compressed, ``None`` where it is. Raises `ReadError`."""
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
            if magic.startswith(GZIP_MAGIC) or magic == ZIP_MAGIC:
                return None
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - size))
            return stream.read(size)
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror or error}") from error


def _read_content(
    path: Path,
    stream: BinaryIO,
    damage: list[Damage],
    limit: int | None,
    size: int,
    advance: Callable[[int], object] | None,
) -> Iterator[bytes]:
    told = 0

    def read(most: int | None) -> Iterator[bytes]:
        nonlocal told
        for block in _read_raw(stream, most, min(size, _RAW_BLOCK)):
            yield block
            if advance is not None and stream.tell() > told:
                advance(stream.tell() - told)
                told = stream.tell()

    def raw() -> Iterator[bytes]:
        stream.seek(0)
        return read(limit)

    magic = stream.read(min(4, 4 if limit is None else limit))
    if magic == EMPTY_ZIP_MAGIC:
        raise TraceRefusedError(f"{path}: a zip archive of nothing")
    if magic == ZIP_MAGIC:
        yield from _unpack_inner(path, unpack_zip(path, stream, read, damage, size), damage, size)
    elif magic.startswith(GZIP_MAGIC):
        yield from unpack_gzip(path, raw, damage, size)
    else:
        yield from raw()


def _unpack_inner(path: Path, content: Iterator[bytes], damage: list[Damage], size: int) -> Iterator[bytes]:
    """What a zip archive holds may be compressed itself."""
    first = next(content, b"")
    whole = chain((first,), content) if first else content
    if not first.startswith(GZIP_MAGIC):
        return whole
    # Read once only: after an error the rest of an inner stream is not looked for.
    return unpack_gzip(path, lambda: whole, damage, size)


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


def _read_raw(stream: BinaryIO, limit: int | None, size: int) -> Iterator[bytes]:
    left = size if limit is None else limit
    while block := stream.read(min(size, left)):
        yield block
        if limit is not None:
            left -= len(block)


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
