"""Which call had a GPU do something: the join of two large tables by process and correlation id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._nsys_database import Database
from ._nsys_places import Places, process_key, unique_correlation
from ._nsys_times import as_ns

_BATCH: Final = 1 << 16
_LOW: Final = (1 << 40) - 1


class Launch(NamedTuple):
    """A call that launched something. `arrow` is the id of the arrow from it."""

    start_ns: int
    global_tid: int
    arrow: int | str


class Launches:
    """The calls that launched something, by (process, correlation id).

    Only calls that some activity names are kept, 28 bytes each: a report has millions. `ambiguous` counts
    correlation ids that several calls of a process have: nothing is joined by them.

    A call of process 111 has correlation id 77, and one of process 112 has 77 as well: the kernel of process
    112 finds the second one. A graph that was launched once has many kernels; each gets an arrow of its own,
    the later ones under ids of the form ``77.1``.
    """

    def __init__(self, database: Database, places: Places, calls: str, activities: Sequence[str]) -> None:
        self._places = places
        keys, starts, threads = _columns(_call_rows(database, calls, places), 3)
        processes = np.unique(keys >> 40)
        #: What an activity belongs to that does not say its process: to the only one.
        self._only = places.key_of(int(processes[0])) if len(processes) == 1 else None
        #: Activities that do not say their process, in a report of several.
        self.homeless = 0
        (wanted,) = _columns(self._activity_rows(database, activities), 1)
        order = np.lexsort((starts, keys))
        order = order[np.isin(keys[order], np.unique(wanted))]
        keys, self._starts, self._threads = keys[order], starts[order], threads[order]
        _, first, counts = np.unique(keys, return_index=True, return_counts=True)
        self.ambiguous = int((counts > 1).sum())
        single = first[counts == 1]
        self._keys = keys[single]
        self._starts, self._threads = self._starts[single], self._threads[single]
        self._used = np.zeros(len(single), np.int32)

    def process_of(self, global_pid: object) -> int | None:
        """The key of the process that an activity belongs to."""
        return process_key(global_pid) if isinstance(global_pid, int) else self._only

    def find(self, process: int | None, correlation: int) -> Launch | None:
        """The call that launched an activity, for one arrow."""
        key = self._key(process, correlation)
        if key is None:
            return None
        at = int(np.searchsorted(self._keys, key))
        if at == len(self._keys) or self._keys[at] != key:
            return None
        used = int(self._used[at])
        self._used[at] += 1
        return Launch(int(self._starts[at]), int(self._threads[at]), f"{key}.{used}" if used else key)

    def _key(self, process: int | None, correlation: int) -> int | None:
        if process is None:
            return None
        key = unique_correlation(self._places.number(process), correlation)
        return key if isinstance(key, int) else None

    def _activity_rows(self, database: Database, activities: Sequence[str]) -> Iterator[tuple[int, ...]]:
        for table in activities:
            for global_pid, correlation in database.rows(table, ["globalPid", "correlationId"], tell=False):
                if isinstance(correlation, int):
                    process = self.process_of(global_pid)
                    self.homeless += process is None
                    key = self._key(process, correlation)
                    if key is not None:
                        yield (key,)


def _call_rows(database: Database, table: str, places: Places) -> Iterator[tuple[int, ...]]:
    for start, thread, correlation in database.rows(
        table, ["start", "globalTid", "correlationId"], tell=False
    ):
        start_ns = as_ns(start)
        if isinstance(thread, int) and isinstance(correlation, int) and start_ns is not None:
            key = unique_correlation(places.number(process_key(thread)), correlation)
            if isinstance(key, int):
                yield key, start_ns, thread


def _columns(rows: Iterator[tuple[int, ...]], width: int) -> tuple[NDArray[Any], ...]:
    """Columns of `width` as arrays; the rows are never all there as objects."""
    batches = [np.zeros((0, width), np.int64)]
    while batch := list(islice(rows, _BATCH)):
        batches.append(np.array(batch, np.int64))
    return tuple(np.concatenate(batches).T.copy())
