"""Content of a gzip or zip file, block by block, as far as it can be had."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from isal import isal_zlib

from slime_profiler_plugin.layout import TRACE_SUFFIXES

from ._damage import Damage, TraceRefusedError

GZIP_MAGIC: Final = b"\x1f\x8b"
ZIP_MAGIC: Final = b"PK\x03\x04"
EMPTY_ZIP_MAGIC: Final = b"PK\x05\x06"
#: Window sizes by which zlib tells the container: gzip, or a bare deflate stream.
_GZIP: Final = 31
_DEFLATE: Final = -15
#: isal declares it as an instance, not as the class it is.
_ISAL_ERROR: Final[type[Exception]] = isal_zlib.error  # type: ignore[assignment]
_SMALL_STEP: Final = 4096
#: A local header of a zip member: 26 bytes, then the lengths of its name and of its extra field.
_LOCAL_HEADER: Final = 30
_STORED, _DEFLATED = 0, 8

Raw = Callable[[], Iterator[bytes]]


class _Member(NamedTuple):
    """Where the content of a zip member lies; `size` is ``None`` where that is not known."""

    offset: int
    size: int | None
    method: int
    crc: int | None


def unpack_gzip(path: Path, raw: Raw, damage: list[Damage], block: int) -> Iterator[bytes]:
    """The content of the gzip bytes that `raw` gives, which may be called again.

    Several members in a row are one content; zeros between and after them are padding. What cannot be
    had is added to `damage`.
    """
    yield from _inflate(path, raw, _GZIP, damage, block)


def unpack_zip(
    path: Path,
    stream: BinaryIO,
    read: Callable[[int | None], Iterator[bytes]],
    damage: list[Damage],
    block: int,
) -> Iterator[bytes]:
    """The content of the one JSON file in a zip archive; `read` gives the bytes of `stream` from where it is.

    Raises `TraceRefusedError` for an archive of several, and for one that is encrypted or packed otherwise
    than with deflate.
    """
    member = _choose_member(path, stream, damage)

    def raw() -> Iterator[bytes]:
        stream.seek(member.offset)
        return read(member.size)

    content = _inflate(path, raw, _DEFLATE, damage, block) if member.method == _DEFLATED else raw()
    crc = 0
    for piece in content:
        crc = isal_zlib.crc32(piece, crc)
        yield piece
    if member.crc not in (None, crc) and not any(d.file == str(path) for d in damage):
        damage.append(Damage(str(path), "corrupt", "the content is not what the zip archive's checksum says"))


def _choose_member(path: Path, stream: BinaryIO, damage: list[Damage]) -> _Member:
    try:
        with zipfile.ZipFile(stream) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
    except (zipfile.BadZipFile, UnicodeDecodeError, NotImplementedError):
        damage.append(
            Damage(str(path), "truncated", "the zip archive has no directory: its first file is read")
        )
        method, offset = _read_local_header(path, stream, 0)
        return _Member(offset, None, method, None)
    named = [info for info in infos if info.filename.lower().endswith(TRACE_SUFFIXES)]
    chosen = infos if len(infos) == 1 else named
    if len(chosen) != 1:
        told = f"{len(infos)} files" if infos else "nothing"
        raise TraceRefusedError(f"{path}: a zip archive of {told}, not of one trace")
    info = chosen[0]
    if info.flag_bits & 1:
        raise TraceRefusedError(f"{path}: an encrypted zip archive")
    method, offset = _read_local_header(path, stream, info.header_offset)
    return _Member(offset, info.compress_size, method, info.CRC)


def _read_local_header(path: Path, stream: BinaryIO, at: int) -> tuple[int, int]:
    """How the member at `at` is packed, and where its content begins."""
    stream.seek(at)
    header = stream.read(_LOCAL_HEADER)
    method = int.from_bytes(header[8:10], "little")
    if len(header) < _LOCAL_HEADER or method not in (_STORED, _DEFLATED):
        raise TraceRefusedError(f"{path}: a zip archive packed with method {method}, which is not read")
    lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    return method, at + _LOCAL_HEADER + lengths


def _inflate(path: Path, raw: Raw, bits: int, damage: list[Damage], block: int) -> Iterator[bytes]:
    kind = "gzip" if bits == _GZIP else "zip"
    engine = isal_zlib.decompressobj(bits)
    given = 0
    for compressed in raw():
        data = compressed
        while data:
            if engine.eof:
                data = data.lstrip(b"\0")
                if not data or bits != _GZIP:
                    break
                engine = isal_zlib.decompressobj(bits)
            try:
                content = engine.decompress(data, block)
            except _ISAL_ERROR as error:
                damage.append(Damage(str(path), "corrupt", f"{kind}: {error}"))
                yield from _inflate_until_error(raw(), bits, given)
                return
            if content:
                given += len(content)
                yield content
            data = engine.unused_data if engine.eof else engine.unconsumed_tail
    if not engine.eof:
        damage.append(Damage(str(path), "truncated", f"the {kind} stream has no end"))


def _inflate_until_error(raw: Iterator[bytes], bits: int, skip: int) -> Iterator[bytes]:
    """What can be had before the damage, less the first `skip` bytes.

    The fast engine gives nothing of the block in which it fails; this one goes in small steps, and the one
    that fails is done again byte by byte: a wrong checksum at the end costs nothing.
    """
    engine = zlib.decompressobj(bits)
    steps = (big[at : at + _SMALL_STEP] for big in raw for at in range(0, len(big), _SMALL_STEP))
    for step in steps:
        data = step
        while data:
            if engine.eof:
                data = data.lstrip(b"\0")
                if not data:
                    break
                engine = zlib.decompressobj(bits)
            before = engine.copy()
            try:
                content, failed = engine.decompress(data), False
            except zlib.error:
                content, failed = _inflate_bytes(before, data), True
            data = engine.unused_data if engine.eof else b""
            if skip < len(content):
                yield content[skip:]
            if failed:
                return
            skip = max(0, skip - len(content))


def _inflate_bytes(engine: Any, data: bytes) -> bytes:
    """What the bytes of `data` give one by one, up to the one at which the engine fails."""
    content = bytearray()
    with suppress(zlib.error):
        for byte in data:
            content += engine.decompress(bytes((byte,)))
    return bytes(content)
