"""Trace files of anyone's, recognised by what is in them: what each is, who recorded it, its events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ._files import Damage
from .kineto import TraceEvent, TraceHeader, read_events, read_header


class Owner(NamedTuple):
    """Who recorded a trace, as far as can be known: from its metadata, ``distributedInfo``, its name.

    `role` is ``None`` where nothing tells it. `detail` is what tells the file apart from others of the same
    rank: the stage and the profile id of an SGLang engine, for one.
    """

    role: str | None = None
    rank: int | None = None
    ranks: dict[str, int] = {}
    world_size: int | None = None
    detail: str = ""


class TraceFile(NamedTuple):
    """One input: `format` is ``kineto``, ``chrome``, ``sglang``, ``ray`` or ``nsys``."""

    path: Path
    format: str
    header: TraceHeader
    owner: Owner


def open_trace(path: Path) -> TraceFile:
    """What the file at `path` is.

    Raises `TraceRefusedError` for what is no trace, naming what it is where that can be told, and
    `ReadError` where it cannot be read.
    """
    return TraceFile(path, "kineto", read_header(path), Owner())


def read_pieces(
    trace: TraceFile, damage: list[Damage], advance: Callable[[int], None] | None = None
) -> Iterator[list[TraceEvent]]:
    """The events of `trace` in the order of the file, in pieces of a few megabytes of text.

    Twice the same for an unchanged file. A file that was cut is read to its last whole event. That, and
    every event that cannot be decoded, is added to `damage`, when the last piece has been given.
    """
    for piece in read_events(trace.path, damage):
        yield [timed.event for timed in piece]
