"""What could not be read: told in the words of everyone who reads."""

from __future__ import annotations

from typing import NamedTuple


class Damage(NamedTuple):
    """Something in `file` that could not be read as it should.

    `kind`: ``truncated`` (the end is missing), ``corrupt`` (bytes that are not what they should
    be), ``refused`` (nothing of the file was used), ``missing``, ``differs`` (two copies that disagree),
    ``replaced`` (bytes that were no text stand as U+FFFD), ``repaired`` (JSON that says what it means, though
    not as it should: nothing is lost), ``unread`` (whole, but of a kind that this package does not read:
    told, and no loss).
    `lost` counts lines or events known to be lost.
    """

    file: str
    kind: str
    reason: str
    line: int | None = None
    lost: int = 0

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line is not None else self.file
        return f"{where}: {self.kind}: {self.reason}"


class ReadError(ValueError):
    """A file or folder cannot be read at all; the message names it and says why."""


class VanishedError(ReadError):
    """A file that was there is gone, or is another: the run is being recorded, and a file got its name."""


class TraceRefusedError(ReadError):
    """A file that is no trace to be read; the message says what it is.

    `is_merged`: it is one, made of others that are to be read instead.
    """

    def __init__(self, message: str, *, is_merged: bool = False) -> None:
        super().__init__(message)
        self.is_merged = is_merged
