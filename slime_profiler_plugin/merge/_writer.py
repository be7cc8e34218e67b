"""Writing a Chrome trace as a stream: whole or not at all."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final

from isal import igzip

from ._source import ENCODER, members

_LEVEL: Final = 1
_BUFFER: Final = 1 << 20
#: A string whose last character is a backslash. Perfetto's importer (v52) takes the quote behind it for
#: an escaped one and gives up on the whole file; spelled as a code point it loads.
_LAST_BACKSLASH: Final = re.compile(rb'(?<!\\)((?:\\\\)*)\\\\"')


class TraceWriter:
    """Writes `path`, compressed when its name ends in ``.gz``.

    The file appears under its name when `finish` has run; until then, and when anything fails, only a
    temporary one beside it does. Use as a context manager.
    """

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = self._temporary.open("wb")
        self._stream: BinaryIO = self._file
        if path.suffix == ".gz":
            # No name and no time in the header: equal inputs give equal files.
            packed: Any = igzip.IGzipFile
            self._stream = packed("", "wb", _LEVEL, self._file, mtime=0)
        self._pending = bytearray(b"{" + members(head) + b',"traceEvents":[')
        self._separator = b"\n"
        self.events = 0

    def write(self, events: list[bytes]) -> None:
        """Append encoded events."""
        if not events:
            return
        self._pending += self._separator + b",\n".join(events)
        self._separator = b",\n"
        self.events += len(events)
        if len(self._pending) >= _BUFFER:
            self._stream.write(_spell_backslashes(bytes(self._pending)))
            self._pending.clear()

    def write_values(self, events: list[dict[str, Any]]) -> None:
        """Append events that are not encoded yet."""
        self.write([ENCODER.encode(event) for event in events])

    def finish(self, tail: dict[str, Any]) -> None:
        """End the list of events, add top-level keys, put the file in its place."""
        self._stream.write(_spell_backslashes(bytes(self._pending) + b"\n]," + members(tail) + b"}\n"))
        if self._stream is not self._file:
            self._stream.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.replace(self._path)

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # what could not be written a moment ago is not wanted any more
            self._file.close()
        self._temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(self._path), None  # not the temporary one, or none


def _spell_backslashes(text: bytes) -> bytes:
    """`text`, JSON cut between two values, with the last backslash of a string as ``\\u005c``."""
    if b'\\\\"' not in text:
        return text
    return _LAST_BACKSLASH.sub(rb'\1\\u005c"', text)
