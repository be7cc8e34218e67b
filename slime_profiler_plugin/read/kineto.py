"""Chrome traces as torch.profiler and others write them: events with exact integer times.

Events keep their raw text wherever nobody has to look inside: ``name``, ``cat`` and
``args`` pass through undecoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ._chunks import TraceText
from ._damage import Damage, TraceRefusedError
from ._events import TraceEvent
from ._files import read_blocks
from ._flaws import report_flaws
from ._header import TraceHeader, read_head

#: Content comes in blocks of this size: larger ones are fetched from the system anew each time.
_BLOCK: Final = 1 << 18

__all__ = [
    "TraceEvent",
    "TraceHeader",
    "TraceRefusedError",
    "read_event_pieces",
    "read_header",
]


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
