"""Record files: the lines one process wrote, in order, over all its segments.

Whatever can be read is given; whatever cannot is named in a list of `Damage`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from slime_profiler_plugin import schema
from slime_profiler_plugin.schema import NewerVersionError, SchemaError

from ._damage import Damage
from ._files import read_blocks

#: Where a line begins, also when the write before it was cut short in the middle.
_LINE_START: Final = b'{"kind":"'
#: Reasons are kept for this many bad lines of a file; the rest are only counted.
_REASONS_KEPT: Final = 20


class RecordLine:
    """One line: what it says, and the fields this version does not know."""

    __slots__ = ("extra", "line")

    def __init__(self, line: schema.Line | schema.Unknown, extra: dict[str, Any]) -> None:
        self.line = line
        self.extra = extra

    @property
    def kind(self) -> str:
        """The line's kind as it stands in the file."""
        if isinstance(self.line, schema.Unknown):
            return self.line.kind
        return str(self.line.__struct_config__.tag)


class Segment(NamedTuple):
    """One file of a process.

    `size`: read only so many bytes of it, for it may still grow. `inode`: the file that had the name, for
    a segment that is rotated leaves its name to the next.
    """

    path: Path
    size: int | None = None
    inode: int | None = None


class LinesRefusedError(ValueError):
    """A segment that this version must not read; the message says why."""


def read_lines(segments: Sequence[Segment], damage: list[Damage]) -> Iterator[RecordLine]:
    """The lines of a process's segments, oldest first.

    A bad line is counted in `damage` with its number and reason, and so is a last line that
    was torn by the writer's death. Raises `LinesRefusedError` for a newer major version, and
    `ReadError` for a file that cannot be opened.
    """
    for segment in segments:
        for _, items in read_line_blocks(segment, damage):
            yield from items


def read_process_line(path: Path) -> schema.Process | None:
    """The first `Process` line of a segment, ``None`` where there is none.

    Raises `LinesRefusedError` and `ReadError` as `read_lines` does.
    """
    for item in read_lines([Segment(path)], []):
        if isinstance(item.line, schema.Process):
            return item.line
    return None


def read_line_blocks(
    segment: Segment, damage: list[Damage], wanted: Callable[[int], bool] | None = None
) -> Iterator[tuple[int, list[RecordLine]]]:
    """The lines of a segment by the block in which they end, blocks numbered from 0.

    Equal content has equal blocks: what was found out of a block at one reading (`wanted`) spares its
    decoding at the next. Raises as `read_lines` does.
    """
    bad = BadLines(segment.path, damage)
    number = 0
    pending = b""
    block_number = -1
    for block_number, block in enumerate(read_blocks(segment.path, damage, segment.size, segment.inode)):
        lines = (pending + block).split(b"\n")
        pending = lines.pop()
        if wanted is not None and not wanted(block_number):
            number += len(lines)
            continue
        items: list[RecordLine] = []
        for raw in lines:
            number += 1
            if raw:
                items.extend(_decode(raw, number, bad))
        yield block_number, items
    if pending and (wanted is None or wanted(block_number + 1)):
        yield block_number + 1, _decode_last(pending, number + 1, bad)
    bad.close()


def _decode_last(raw: bytes, number: int, bad: BadLines) -> list[RecordLine]:
    """A last line without its newline may still be whole: then only the newline is missing."""
    try:
        line, extra = schema.decode_line(raw)
    except NewerVersionError as error:
        raise LinesRefusedError(f"{bad.path}: {error}") from error
    except SchemaError:
        bad.torn(number, len(raw))
        return list(_decode_after_tear(raw))
    return [RecordLine(line, extra)]


def _decode(raw: bytes, number: int, bad: BadLines) -> Iterator[RecordLine]:
    try:
        line, extra = schema.decode_line(raw)
    except NewerVersionError as error:
        raise LinesRefusedError(f"{bad.path}: {error}") from error
    except SchemaError as error:
        bad.add(number, str(error))
        yield from _decode_after_tear(raw)
    else:
        yield RecordLine(line, extra)


def _decode_after_tear(raw: bytes) -> Iterator[RecordLine]:
    try:
        line, extra = schema.decode_line(after_tear(raw))
    except SchemaError:
        return
    yield RecordLine(line, extra)


def after_tear(raw: bytes) -> bytes:
    """The line behind a torn one, or nothing: a write that failed half-way leaves no newline."""
    at = raw.rfind(_LINE_START)
    return raw[at:] if at > 0 else b""


class BadLines:
    """Counts the bad lines of one file into its list of damage."""

    def __init__(self, path: Path, damage: list[Damage]) -> None:
        self.path = path
        self._damage = damage
        self._more = 0
        self._kept = 0

    def add(self, number: int | None, reason: str) -> None:
        """One more; `number` where it is known."""
        if self._kept < _REASONS_KEPT:
            self._kept += 1
            self._damage.append(Damage(str(self.path), "corrupt", reason, number, 1))
        else:
            self._more += 1

    def torn(self, number: int | None, size: int) -> None:
        """The last one, cut off after `size` bytes."""
        reason = f"the last line is torn after {size} bytes"
        self._damage.append(Damage(str(self.path), "truncated", reason, number, 1))

    def close(self) -> None:
        """No more: those that were only counted are added."""
        if self._more:
            reason = f"{self._more} more lines cannot be read"
            self._damage.append(Damage(str(self.path), "corrupt", reason, None, self._more))
