"""The record file of this process: whole lines only, segments, nobody else's file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from ._compress import compress_file
from ._descriptors import Descriptor


class TakenError(FileExistsError):
    """Another process has record files of this name."""


class SegmentedFile:
    """Appends whole lines to the current segment; rotates and compresses.

    Used by one thread. `path_of(None)` is the current segment, `path_of(n)` rotated ones.
    """

    def __init__(self, path_of: Callable[[int | None], Path]) -> None:
        self._path_of = path_of
        self._descriptor: Descriptor | None = None
        self._torn = False
        #: Number of the current segment.
        self.segment = 0
        #: Bytes in the current segment.
        self.size = 0
        self._rotated_bytes = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a file to append to."""
        return self._descriptor is not None

    @property
    def total_bytes(self) -> int:
        """On disk, all segments."""
        return self._rotated_bytes + self.size

    def open(self) -> None:
        """Create the current segment. Raises `OSError`, `TakenError` when the name is somebody's."""
        path = self._path_of(None)
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            self._descriptor = Descriptor(os.open(path, flags, 0o644))
        except FileExistsError as error:
            raise TakenError(error.errno, error.strerror, str(path)) from error
        if self.segment == 0 and self._has_rotated():
            # Its owner is between two segments, and would lose the first to our rotation.
            self.close()
            path.unlink()
            raise TakenError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self.size = 0
        self._torn = False

    def _has_rotated(self) -> bool:
        first = self._path_of(0)
        return first.exists() or first.with_name(first.name + ".gz").exists()

    def append(self, data: bytes) -> tuple[int, OSError | None]:
        """Append whole lines; returns how many of them were kept, and what stopped the rest."""
        try:
            fd = self._fd()
        except OSError as error:
            return 0, error
        prefix = b"\n" if self._torn else b""
        view = memoryview(prefix + data)
        written = 0
        try:
            while written < len(view):
                written += os.write(fd, view[written:])
        except OSError as error:
            kept = bytes(view[:written]).rfind(b"\n") + 1
            lines = bytes(view[len(prefix) : kept]).count(b"\n")
            if not self._cut(fd, kept, written) and kept < written and view[written] == ord("\n"):
                lines += 1  # only its end is missing, and that will be written
            return lines, error
        self.size += written
        self._torn = False
        return data.count(b"\n"), None

    def _fd(self) -> int:
        """Looked up before each use. Raises `OSError` when it is not our file's, and that is gone."""
        assert self._descriptor is not None
        if not self._descriptor.ours:
            path = self._path_of(None)
            if not self._descriptor.reopen(path, os.O_WRONLY | os.O_APPEND):
                raise OSError(errno.ESTALE, "it was closed, and another file has its name", str(path))
        return self._descriptor.fd

    def _cut(self, fd: int, kept: int, written: int) -> bool:
        """After a failed write: back to the last whole line. Whether the file ends with one."""
        try:
            if kept < written:
                os.ftruncate(fd, self.size + kept)
        except OSError:  # then the torn line is ended before the next one
            self.size += written
            self._torn = True
            return False
        self.size += kept
        self._torn = self._torn and not written
        return True

    def sync(self) -> None:
        """fsync; raises `OSError`."""
        if self._descriptor is not None:
            os.fsync(self._fd())

    def close(self) -> None:
        """Close without syncing. Also right in a forked child, whose descriptor is its own."""
        if self._descriptor is not None:
            self._descriptor.close()
            self._descriptor = None

    def rotate(self) -> None:
        """Set the current segment aside, compress it, and be without a file until `open`.

        Raises `OSError` when it could not be set aside, and is open still, or not compressed.
        """
        aside = self._path_of(self.segment)
        os.rename(self._path_of(None), aside)
        self.close()
        self.segment += 1
        self._rotated_bytes += self.size
        raw_size, self.size = self.size, 0
        compress_file(aside, _never)
        self._rotated_bytes += aside.with_name(aside.name + ".gz").stat().st_size - raw_size


def _never() -> bool:
    return False
