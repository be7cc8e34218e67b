"""Descriptors of ours, in a program that may close those and use their numbers again."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Final

_FIRST: Final = 3


class Descriptor:
    """A number, and which file it was.

    A program that becomes a daemon, or closes "all" descriptors otherwise, closes ours; the next
    file it opens gets the number.
    """

    def __init__(self, fd: int, lowest: int = _FIRST) -> None:
        """Take over `fd`, moved to `lowest` or more where it is below: 0 to 2 are the program's.

        Raises `OSError`; then `fd` is closed.
        """
        try:
            if fd < lowest:
                moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
                os.close(fd)
                fd = moved
            self._file = _identity(fd)
        except OSError:
            os.close(fd)
            raise
        self.fd = fd

    @property
    def ours(self) -> bool:
        """Whether the number still stands for the same file."""
        try:
            return _identity(self.fd) == self._file
        except OSError:
            return False

    def reopen(self, path: str | os.PathLike[str], flags: int) -> bool:
        """Open the same file by its name, and leave the number to whom it belongs now.

        Returns whether it is the same file; raises `OSError`.
        """
        again = Descriptor(os.open(path, flags | os.O_CLOEXEC))
        if again._file != self._file:
            again.close()
            return False
        self.fd = again.fd
        return True

    def close(self) -> None:
        """Close it, if it is still ours."""
        if self.ours:
            with contextlib.suppress(OSError):  # such as the quota's, of a network file system
                os.close(self.fd)


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
