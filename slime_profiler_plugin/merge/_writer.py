"""Putting an output together from its parts: whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from ._part import GZIP_HEADER, Part, PartWriter, append_file, end_stream, gzip_trailer
from ._source import encode_value, members


class TraceWriter:
    """Writes `path`, compressed when its name ends in ``.gz``.

    The file appears under its name when `finish` has run; until then, and when anything fails, only a
    temporary one beside it does. Use as a context manager.
    """

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.is_compressed = path.suffix == ".gz"
        self._file: BinaryIO = self._temporary.open("wb")
        self._parts: list[Part] = []
        self._own: PartWriter | None = None
        if self.is_compressed:
            self._file.write(GZIP_HEADER)
        self._separator = b"\n"
        self._write(b"{" + b",".join(filter(None, (members(head), b'"traceEvents":['))))

    @property
    def size(self) -> int:
        """Bytes of text in the parts that are whole."""
        return sum(part.size for part in self._parts)

    def write(self, events: list[bytes]) -> None:
        """Append encoded events."""
        if events:
            self._write(self._separator + b",\n".join(events))
            self._separator = b",\n"

    def write_values(self, events: list[dict[str, Any]]) -> None:
        """Append events that are not encoded yet."""
        self.write([encode_value(event) for event in events])

    def append(self, part: Part, path: Path) -> None:
        """Append a part, each of whose pieces begins with a comma; its file is removed."""
        self._end_own()
        append_file(self._file, path)
        self._parts.append(part)

    def finish(self, tail: dict[str, Any]) -> None:
        """End the list of events, add top-level keys, put the file in its place."""
        self._write(b",".join(filter(None, (b"\n]", members(tail)))) + b"}\n")
        self._end_own()
        if self.is_compressed:
            self._file.write(end_stream() + gzip_trailer(self._parts))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.replace(self._path)

    def _write(self, text: bytes) -> None:
        if self._own is None:
            self._own = PartWriter(self._file, compress=self.is_compressed)
        self._own.write(text)

    def _end_own(self) -> None:
        if self._own is not None:
            self._parts.append(self._own.finish())
            self._own = None

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
