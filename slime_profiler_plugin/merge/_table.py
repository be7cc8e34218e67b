"""What a survey leaves for the second reading of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec
import numpy as np

from ._kinds import Ints, Kinds

_TEXTS: Final = "texts.msgpack"


class _Sink:
    """A file for numpy, which does not say why it cannot write to one that it takes for a file itself."""

    def __init__(self, file: BinaryIO) -> None:
        self.write = file.write


class Table(NamedTuple):
    """The columns that the second reading needs.

    By number of the event: `rows` (number of its row, -1 for what is not written), `kinds` (begins that are
    written as slices are slices), `starts`, `lengths` (ns), `sizes_class` (empty without a budget).
    `flow_events` are numbers of events, with their `flow_kinds`, their `flow_ids` from 1 on, the events of
    the slices they lie on (`flow_slices`, -1: none) and the place among the flow events of their other end
    (`flow_partners`, -1: none). `async_events` with `async_ids` from 1 on. `begins` are events that are
    written as slices, `closers` the ends that closed them, `odd_phases` events with a phase of several
    letters. `keeps_lengths` is 1 where the lengths can stay as they are spelled, else 0.
    """

    rows: Ints
    kinds: Kinds
    starts: Ints
    lengths: Ints
    sizes_class: Ints
    flow_events: Ints
    flow_kinds: Kinds
    flow_ids: Ints
    flow_slices: Ints
    flow_partners: Ints
    async_events: Ints
    async_ids: Ints
    begins: Ints
    closers: Ints
    odd_phases: Ints
    keeps_lengths: Ints

    def save(self, folder: Path) -> None:
        """Each column as a file of its own."""
        for name, column in self._asdict().items():
            with (folder / f"{name}.npy").open("wb") as file:
                np.save(_Sink(file), column)

    @classmethod
    def load(cls, folder: Path) -> Table:
        """What `save` left there."""
        return cls(*(np.load(folder / f"{name}.npy") for name in cls._fields))


class Texts(NamedTuple):
    """Text that events take from others: by event of the begin, the args of the end that closed it; by
    event of the end of an arrow, the name of its start."""

    end_args: dict[int, bytes]
    names: dict[int, bytes]

    def save(self, folder: Path) -> None:
        """In a file of its own."""
        (folder / _TEXTS).write_bytes(msgspec.msgpack.encode(self))

    @classmethod
    def load(cls, folder: Path) -> Texts:
        """What `save` left there."""
        return msgspec.msgpack.decode((folder / _TEXTS).read_bytes(), type=cls)
