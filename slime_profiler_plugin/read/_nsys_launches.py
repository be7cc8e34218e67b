"""Which call had a GPU do something: the join of two large tables by process and correlation id."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._nsys_database import Database
from ._nsys_places import Places, process_key, unique_correlation
from ._nsys_times import as_ns

_BATCH: Final = 1 << 14


class Launch(NamedTuple):
    """A call that launched something. `arrow` is the id of the arrow from it."""

    start_ns: int
    global_tid: int
    arrow: int | str


class Launches:
    """The calls that launched something, by (process, correlation id).

    Only calls that some activity names are kept, 32 bytes each: a report has millions. `ambiguous` counts
    correlation ids that several calls of a process have: nothing is joined by them.

    A call of process 111 has correlation id 77, and one of process 112 has 77 as well: the kernel of process
    112 finds the second one. A graph that was launched once has many kernels; each gets an arrow of its own,
    the later ones under ids of the form ``77.1``.
    """

    def __init__(self, database: Database, places: Places, calls: str, activities: Sequence[str]) -> None:
        self._places = places
        callers = database.distinct([calls], {"globalTid": '"globalTid" >> 24'})
        processes = sorted(process_key(caller << 24) for caller in callers)
        for process in processes:
            places.number(process)
        #: What an activity belongs to that does not say its process: to the only one.
        self._only = processes[0] if len(processes) == 1 else None
        #: Activities that do not say their process, in a report of several.
        self.homeless = 0
        keys, *others = _matching(
            _call_rows(database, calls, places), self._wanted(self._activity_keys(database, activities))
        )
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts_a_run = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
        single = starts_a_run & np.append(starts_a_run[1:], True)[: len(keys)]
        self.ambiguous = int((starts_a_run & ~single).sum())
        order = order[single]
        # Looked up one by one: there the plain arrays are several times as fast as numpy's.
        self._keys = array("q", keys[single].tobytes())
        self._starts, self._threads = (array("q", column[order].tobytes()) for column in others)
        self._used = array("l", bytes(array("l").itemsize * len(order)))

    def process_of(self, global_pid: object) -> int | None:
        """The key of the process that an activity belongs to."""
        return process_key(global_pid) if isinstance(global_pid, int) else self._only

    def find(self, process: int | None, correlation: int) -> Launch | None:
        """The call that launched an activity, for one arrow."""
        key = self._key(process, correlation)
        if key is None:
            return None
        at = bisect_left(self._keys, key)
        if at == len(self._keys) or self._keys[at] != key:
            return None
        used = self._used[at]
        self._used[at] = used + 1
        return Launch(self._starts[at], self._threads[at], f"{key}.{used}" if used else key)

    def _key(self, process: int | None, correlation: int) -> int | None:
        if process is None:
            return None
        key = unique_correlation(self._places.number(process), correlation)
        return key if isinstance(key, int) else None

    def _activity_keys(self, database: Database, activities: Sequence[str]) -> Iterator[tuple[int]]:
        for table in activities:
            for global_pid, correlation in database.rows(table, ["globalPid", "correlationId"], tell=False):
                if isinstance(correlation, int):
                    process = self.process_of(global_pid)
                    self.homeless += process is None
                    key = self._key(process, correlation)
                    if key is not None:
                        yield (key,)

    @staticmethod
    def _wanted(keys: Iterator[tuple[int]]) -> NDArray[Any]:
        batches = [np.unique(batch) for batch in _batches(keys)]
        return np.unique(np.concatenate(batches)) if batches else np.zeros(0, np.int64)


def _call_rows(database: Database, table: str, places: Places) -> Iterator[tuple[int, ...]]:
    for start, thread, correlation in database.rows(
        table, ["start", "globalTid", "correlationId"], tell=False
    ):
        start_ns = as_ns(start)
        if isinstance(thread, int) and isinstance(correlation, int) and start_ns is not None:
            key = unique_correlation(places.number(process_key(thread)), correlation)
            if isinstance(key, int):
                yield key, start_ns, thread


def _matching(rows: Iterator[tuple[int, ...]], wanted: NDArray[Any]) -> list[NDArray[Any]]:
    """The columns of the rows (key, start, thread) whose key is among the sorted `wanted`."""
    columns = [array("q") for _ in range(3)]
    for batch in _batches(rows):
        at = np.searchsorted(wanted, batch[:, 0])
        at[at == len(wanted)] = 0
        found = batch[wanted[at] == batch[:, 0]] if len(wanted) else batch[:0]
        for number, column in enumerate(columns):
            column.frombytes(found[:, number].tobytes())
    return [np.frombuffer(column, np.int64) if column else np.zeros(0, np.int64) for column in columns]


def _batches(rows: Iterator[tuple[int, ...]]) -> Iterator[NDArray[Any]]:
    """Rows as arrays of at most `_BATCH`: a report has millions, and they are never all there as objects."""
    while batch := list(islice(rows, _BATCH)):
        yield np.array(batch, np.int64)
