"""Trace files of anyone's, recognised by what is in them: what each is, who recorded it, its events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from ._damage import Damage
from ._header import TraceHeader, read_head
from ._nsys_database import is_database
from ._owner import Owner, find_owner
from ._recognise import FIX_KEY, recognise
from .kineto import TraceEvent, read_event_pieces
from .nsys import is_nsys_report, nsys_pieces, read_nsys_header
from .samples import is_torch_file, read_samples_header, sample_pieces

#: Numbers may be decimal ones.
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")

__all__ = ["Owner", "TraceFile", "open_trace", "read_pieces"]


class TraceFile(NamedTuple):
    """One input.

    `format` is ``ours`` (a window that the recorder made), ``kineto`` (torch.profiler), ``sglang``, ``ray``,
    ``chrome`` (any other Chrome trace), ``nsys`` or ``samples`` (traces of samples that slime dumped).
    """

    path: Path
    format: str
    header: TraceHeader
    owner: Owner


def open_trace(path: Path) -> TraceFile:
    """What the file at `path` is.

    Raises `TraceRefusedError` for what is no trace or a merged one, naming what it is where that can be told,
    and `ReadError` where it cannot be read.
    """
    if is_database(path) or is_nsys_report(path):
        return TraceFile(path, "nsys", read_nsys_header(path), Owner())
    if is_torch_file(path):
        return TraceFile(path, "samples", *read_samples_header(path))
    head = read_head(path)
    form = recognise(path, head)
    owner = find_owner(path.name, head.header, is_engine=form == "sglang")
    return TraceFile(path, form, pack(head.header), owner)


def mended_from(trace: TraceFile) -> str | None:
    """The name of the file that `trace` is a mended copy of, ``None`` where it is none."""
    told = trace.header.metadata.get(FIX_KEY)
    try:
        fields = msgspec.json.decode(told, type=_Mended) if isinstance(told, Raw) else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return fields.sources[0].file if fields is not None and len(fields.sources) == 1 else None


class _Source(msgspec.Struct):
    file: str


class _Mended(msgspec.Struct):
    sources: list[_Source]


def pack(header: TraceHeader) -> TraceHeader:
    """With lists and objects of the metadata as JSON text.

    A merge holds the headers of all its traces, and each of a thousand ranks lists the thousand of its
    groups.
    """
    packed = {
        key: Raw(_ENCODER.encode(value)) if isinstance(value, (dict, list)) else value
        for key, value in header.metadata.items()
    }
    return header._replace(metadata=packed)


def read_pieces(
    trace: TraceFile, damage: list[Damage], advance: Callable[[int], object] | None = None
) -> Iterator[list[TraceEvent]]:
    """The events of `trace` in the order of the file, in pieces of about a megabyte of text.

    Twice the same for an unchanged file. A file that was cut is read to its last whole event. That, and
    every event that cannot be decoded, is added to `damage` when the last piece has been given. `advance` is
    told how many bytes of the file, as it lies on disk, were read since it was told last.
    """
    if trace.format in ("nsys", "samples"):
        if trace.format == "nsys":
            yield from nsys_pieces(trace.path, damage)
        else:
            yield from sample_pieces(trace.path, trace.owner.detail, damage)
        if advance is not None:  # neither is read from front to end
            advance(trace.path.stat().st_size)
    else:
        yield from read_event_pieces(trace.path, damage, advance)
