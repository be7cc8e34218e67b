"""Chrome traces as torch.profiler and others write them: events with exact integer times.

Events keep their raw text wherever nobody has to look inside: ``name``, ``cat`` and
``args`` pass through undecoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import UNSET

from ._chunks import TraceText
from ._damage import Damage, TraceRefusedError
from ._events import TraceEvent, time_ns
from ._files import read_blocks
from ._flaws import report_flaws
from ._header import TraceHeader, read_head

#: Content comes in blocks of this size: larger ones are fetched from the system anew each time.
_BLOCK: Final = 1 << 18

__all__ = [
    "TimedEvent",
    "TraceEvent",
    "TraceHeader",
    "TraceRefusedError",
    "read_event_pieces",
    "read_events",
    "read_header",
]


class TimedEvent(NamedTuple):
    """An event and when it was, in ns relative to the file's base; `None`: it has no usable time."""

    event: TraceEvent
    start_ns: int | None
    dur_ns: int


def read_header(path: Path) -> TraceHeader:
    """The metadata of a trace, wherever in the file it stands.

    Raises `TraceRefusedError` for what is no trace, `ReadError` where nothing can be read.
    """
    return read_head(path).header


def read_event_pieces(
    path: Path, damage: list[Damage], advance: Callable[[int], object] | None = None
) -> Iterator[list[TraceEvent]]:
    """The events of a trace in file order, in pieces of about a megabyte of text, none of them empty.

    Twice the same for an unchanged file. A file that was cut is read to its last whole event. That, every
    event that cannot be decoded, and what had to be mended, is added to `damage` when the last piece has
    been given. `advance` is told how many bytes of the file were read since it was told last. Raises
    `ReadError` when the file cannot be read.
    """
    before = len(damage)
    text = TraceText(read_blocks(path, damage, size=_BLOCK, advance=advance))
    total = 0
    for events in text.pieces():
        total += len(events)
        yield events
    is_cut = any(one.kind == "truncated" for one in damage[before:] if one.file == str(path))
    report_flaws(path, text, total, damage, is_cut=is_cut)


def read_events(path: Path, damage: list[Damage]) -> Iterator[list[TimedEvent]]:
    """The events of a trace with their times, as `read_event_pieces` gives them."""
    for events in read_event_pieces(path, damage):
        yield [_timed(event) for event in events]


def _timed(event: TraceEvent) -> TimedEvent:
    ts, dur = event.ts, event.dur
    try:
        start = None if ts is UNSET else time_ns(ts)
        length = 0 if dur is UNSET else time_ns(dur)
    except ValueError:
        return TimedEvent(event, None, 0)
    return TimedEvent(event, start, length)
