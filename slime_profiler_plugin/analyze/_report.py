"""Reports about a run: the views over its tables, and SQL of the user's own."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from slime_profiler_plugin.merge import parse_choice

from ._cache import CacheState, update_cache
from ._column import Table, TableColumn
from ._engine import CacheDamagedError, TablesError, connect, fetch
from ._ranks_view import COLUMNS as RANKS_COLUMNS
from ._ranks_view import ranks_view
from ._rollout_view import COLUMNS as ROLLOUT_COLUMNS
from ._rollout_view import rollout_view
from ._sync_view import BUCKET_COLUMNS, SYNC_COLUMNS, bucket_view, sync_view
from ._tables import ROLLOUT_ORDER

#: The views and their columns.
VIEW_COLUMNS: Final[dict[str, tuple[TableColumn, ...]]] = {
    "rollout": ROLLOUT_COLUMNS,
    "sync": SYNC_COLUMNS,
    "bucket": BUCKET_COLUMNS,
    "ranks": RANKS_COLUMNS,
}
VIEWS: Final = tuple(VIEW_COLUMNS)
#: Those that fit a screen.
DEFAULT_VIEWS: Final = ("rollout", "sync", "ranks")
#: Other alphabets have digits too, and a record may name a rollout with them.
_NUMBER: Final = re.compile("[0-9]+")
_Answer = TypeVar("_Answer")


class NoDataError(ValueError):
    """The run holds nothing to report about; the message says what was looked for."""


class RunTables:
    """The tables of one run, read only. Close it, or use it in a ``with``.

    They are kept in the folder `cache`, by default `cache_folder`; afterwards `cache` says what it took to
    bring them up to date. Raises `FolderOfRunsError`, `ReadError` and
    `TablesUnavailableError`.
    """

    def __init__(self, run: Path | str, cache: Path | None = None) -> None:
        self._run = Path(run)
        self._folder = cache
        self._open(anew=False)

    def __enter__(self) -> RunTables:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the file of the cache back."""
        self._connection.close()

    def _open(self, *, anew: bool) -> None:
        self.cache: CacheState = update_cache(self._run, self._folder, anew=anew)
        self._connection = connect(self.cache.path, read_only=True)

    def _ask(self, question: Callable[[Any], _Answer]) -> _Answer:
        """What `question` finds; where the cache turns out to be damaged, it is made anew once."""
        try:
            return question(self._connection)
        except CacheDamagedError:
            self._connection.close()
            self._open(anew=True)
            return question(self._connection)

    def rollouts(self) -> list[str]:
        """Every rollout that a phase names, as text, in order."""
        query = f"SELECT DISTINCT rollout_name FROM rollout_spans ORDER BY {ROLLOUT_ORDER}"
        _, rows = self._ask(lambda connection: fetch(connection, query))
        return [row[0] for row in rows]

    def unreadable(self) -> list[dict[str, Any]]:
        """What could not be read: path, kind, line, lost, reason."""
        query = "SELECT * FROM damage ORDER BY path, line"
        names, rows = self._ask(lambda connection: fetch(connection, query))
        return [dict(zip(names, row, strict=True)) for row in rows]

    def choose(self, text: str) -> list[str]:
        """The rollouts that ``--rollout`` stands for. Raises `MergeUsageError` and `NoDataError`."""
        choice, known = parse_choice(text), self.rollouts()
        if choice == "all":
            chosen = known
        elif choice == "latest":
            chosen = known[-1:]
        elif isinstance(choice, tuple):
            chosen = [r for r in known if _NUMBER.fullmatch(r) and choice[0] <= int(r) < choice[1]]
        else:
            chosen = [r for r in known if r == str(choice)]
        if not chosen:
            told = ", ".join(known) if len(known) <= 8 else f"{', '.join(known[:3])} … {known[-1]}"
            raise NoDataError(f"no phase of this run names rollout {text}; it has {told or 'none'}")
        return chosen

    def view(self, name: str, rollouts: Iterable[str] | None = None, link_gb_s: float | None = None) -> Table:
        """One of `VIEWS` over some rollouts, by default all.

        `link_gb_s` (10^9 bytes per second) is the slowest link, for the lower bound of a sync. Raises
        `ValueError` for another name.
        """
        chosen = self.rollouts() if rollouts is None else list(rollouts)
        if name == "rollout":
            return self._ask(lambda connection: rollout_view(connection, chosen))
        if name == "sync":
            return self._ask(lambda connection: sync_view(connection, chosen, link_gb_s))
        if name == "bucket":
            return self._ask(lambda connection: bucket_view(connection, chosen))
        if name == "ranks":
            return self._ask(lambda connection: ranks_view(connection, chosen))
        raise ValueError(f"no view {name!r}; there are {', '.join(VIEWS)}")

    def sql(self, query: str) -> Table:
        """The answer to any query over `TABLES`; no file and no network can be reached from it.

        Raises `TablesError`.
        """
        names, rows = self._ask(lambda connection: fetch(connection, query))
        if not names:
            raise TablesError("the query asks for nothing")
        return Table(
            "sql", tuple(TableColumn(name, "", "as the query says") for name in _unique(names)), rows
        )


def _unique(names: list[str]) -> list[str]:
    """Names that several columns have get a number, as in the engine's own subqueries: a, a_1."""
    told: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        free = (each for each in numbered if each not in told and each not in names)
        told.append(next(free) if name in told else name)
    return told
