"""The tables of runs that may be growing: brought up to date by one thread, however many ask."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from slime_profiler_plugin.analyze import RunTables

from ._log_folder import RunFolder

#: How long who asks waits for newer tables where there are older ones.
_PATIENCE_S: Final = 5.0
#: An update that took longer than that is followed by a rest of `_REST` times as long as it took.
_LONG_S: Final = 1.0
_REST: Final = 4.0
#: Runs whose tables stay open.
_KEPT_RUNS: Final = 4
_Result = TypeVar("_Result")


class Snapshot:
    """The tables of a run as they were when its files had `version`. One at a time asks them.

    Its file of the cache is given back when nobody holds the snapshot any more.
    """

    def __init__(self, version: str, tables: RunTables) -> None:
        self.version = version
        self._tables = tables
        self._lock = threading.Lock()

    def ask(self, question: Callable[[RunTables], _Result]) -> _Result:
        """What `question` finds in the tables."""
        with self._lock:
            return question(self._tables)


class LiveTables:
    """Of each run the newest snapshot that there is, kept in the folder that `find_folder` tells.

    While a run grows its files change every second, and a large one takes longer than that to be read: then
    the older snapshot answers, and says its version.
    """

    def __init__(self, find_folder: Callable[[], Path]) -> None:
        self._find_folder = find_folder
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _LiveRun] = OrderedDict()

    def get(self, run: RunFolder) -> Snapshot:
        """A snapshot of the run; of its `version`, unless that takes long to make and there is an older one.

        Raises `ReadError` and `TablesUnavailableError`.
        """
        with self._lock:
            live = self._runs.setdefault(run.key, _LiveRun())
            self._runs.move_to_end(run.key)
            while len(self._runs) > _KEPT_RUNS:
                self._runs.popitem(last=False)
        return live.get(run, self._find_folder)


class _LiveRun:
    """The snapshot of one run and the thread that makes the next."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._snapshot: Snapshot | None = None
        self._error: Exception | None = None
        self._updating = False
        self._updates = 0
        self._rest_until = 0.0

    def get(self, run: RunFolder, find_folder: Callable[[], Path]) -> Snapshot:
        """See `LiveTables.get`."""
        with self._changed:
            known = self._snapshot
            if known is not None and (known.version == run.version or time.monotonic() < self._rest_until):
                return known
            # An update that runs already may have begun before the files became what they are.
            wanted = self._updates + (2 if self._updating and known is not None else 1)
            if not self._updating:
                self._start(run, find_folder)
            until = None if known is None else time.monotonic() + _PATIENCE_S
            while self._updates < wanted:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
                if not self._updating and self._updates < wanted:
                    self._start(run, find_folder)
            if self._error is not None and not self._updating:
                raise self._error
            assert self._snapshot is not None
            return self._snapshot

    def _start(self, run: RunFolder, find_folder: Callable[[], Path]) -> None:
        self._updating = True
        threading.Thread(
            target=self._update, args=(run, find_folder), name="slime_profiler_tables", daemon=True
        ).start()

    def _update(self, run: RunFolder, find_folder: Callable[[], Path]) -> None:
        begun = time.monotonic()
        made: Snapshot | None = None
        failure: Exception | None = None
        try:
            made = Snapshot(run.version, RunTables(run.path, find_folder()))
        except Exception as error:  # noqa: BLE001 - whoever waits raises it
            failure = error
        took = time.monotonic() - begun
        with self._changed:
            self._error = failure
            self._snapshot = made or self._snapshot
            self._updating = False
            self._updates += 1
            self._rest_until = time.monotonic() + (_REST * took if took > _LONG_S else 0)
            self._changed.notify_all()
