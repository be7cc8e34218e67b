"""The tables of an Nsight Systems export, each as far as it can be read.

An export has only the tables that it needed, their names may end in a version (``NVTX_EVENTS_V2``), and each
release adds columns. So nothing is asked for that was not looked up before.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw

from ._damage import Damage, ReadError, VanishedError
from ._nsys_times import MOST_NS, as_ns
from .kineto import TraceRefusedError

SQLITE_MAGIC: Final = b"SQLite format 3\0"
#: A database with any of these, or a table of CUPTI's, is an export of Nsight Systems.
_TELLTALE: Final = (
    "StringIds",
    "TARGET_INFO_SESSION_START_TIME",
    "ANALYSIS_DETAILS",
    "EXPORT_META_DATA",
    "META_DATA_EXPORT",
    "NVTX_EVENTS",
    "OSRT_API",
    "CUPTI_ACTIVITY_KIND_",
)
_VERSION: Final = re.compile(r"_V\d+")
_HEADER_BYTES: Final = 100
#: Where a page count stands in the first page; 0 where an old writer left it out.
_PAGE_SIZE_AT, _PAGE_COUNT_AT = slice(16, 18), slice(28, 32)
_CACHED_STRINGS: Final = 1 << 16
#: What a damaged database raises: SQLite quotes it in messages, which then may be no UTF-8.
DAMAGED: Final = (sqlite3.Error, UnicodeDecodeError)


def is_database(path: Path) -> bool:
    """Whether `path` is an SQLite database, by its first bytes. Raises `ReadError` when it cannot be read."""
    return first_bytes(path, len(SQLITE_MAGIC)) == SQLITE_MAGIC


def _journals(path: Path) -> Iterator[Path]:
    """What SQLite has put beside the file: changes that are not in it yet, or have to be undone."""
    for suffix in ("-wal", "-journal"):
        journal = path.with_name(path.name + suffix)
        with contextlib.suppress(OSError):
            if journal.stat().st_size:
                yield journal


class Database:
    """An export, opened so that nothing is written: no journal beside it, also in a read-only folder.

    What cannot be read is added to `damage`; the rows before it are given.
    """

    def __init__(self, path: Path, damage: list[Damage]) -> None:
        """Raises `TraceRefusedError` for what is no export or has no readable list of tables."""
        self.path = path
        self._damage = damage
        self._told: set[str] = set()
        self._complete = _is_whole(path)
        #: Bytes of text that were no UTF-8.
        self.replaced = 0
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        try:
            self._connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        except DAMAGED as error:
            raise ReadError(f"{path}: {_said(error)}") from error
        try:
            self._connection.text_factory = self._decode
            if not self._complete:
                # SQLite reads nothing of a file with fewer pages than it should have, but for this.
                self._connection.execute("pragma writable_schema = on")
            self._columns = self._read_schema()
            self._keyed = self._has_key("StringIds", "id")
        except DAMAGED as error:
            self._connection.close()
            raise TraceRefusedError(f"{path}: {self._kind()} SQLite database: {_said(error)}") from error
        journals = [each.name for each in _journals(path)]
        if not any(name.startswith(_TELLTALE) for name in self._columns):
            self._connection.close()
            beside = f" (what stands in {', '.join(journals)} is not read)" if journals else ""
            raise TraceRefusedError(f"{path}: an SQLite database, but no export of Nsight Systems{beside}")
        for journal in journals:
            reason = (
                f"changes that stand in {journal} are not read: a program has it open, or did not end well"
            )
            damage.append(Damage(str(path), "truncated", reason))
        self._every_string: dict[object, str] | None = None
        #: A string by its id as JSON text, and as it is; ids that stand for none give ``None``.
        self.text: Callable[[object], str | None] = functools.lru_cache(_CACHED_STRINGS)(self._text)

    def close(self) -> None:
        """No more rows."""
        self._connection.close()

    def tables(self, name: str) -> list[str]:
        """The tables called `name`, with or without a version at the end."""
        return sorted(
            table
            for table in self._columns
            if table == name or (table.startswith(name) and _VERSION.fullmatch(table, len(name)))
        )

    def all_tables(self) -> list[str]:
        """Every table, sorted."""
        return sorted(self._columns)

    def columns(self, table: str) -> frozenset[str]:
        """Names of the columns of `table`."""
        return self._columns[table]

    def rows(self, name: str, wanted: Sequence[str], *, tell: bool = True) -> Iterator[tuple[Any, ...]]:
        """The `wanted` columns of the tables called `name`; ``None`` for a column that is not there.

        In the order in which they were written, which is the same each time. `tell`: what cannot be read is
        damage; who reads a table twice tells it once.
        """
        for table in self.tables(name):
            yield from self.rows_of(table, wanted, tell=tell)

    def rows_of(
        self, table: str, wanted: Sequence[str], where: str = "", *, tell: bool = True
    ) -> Iterator[tuple[Any, ...]]:
        """The same of one table, and only rows that are so; `where` is SQL."""
        present = self._columns[table]
        selected = ", ".join(f'"{column}"' if column in present else "NULL" for column in wanted)
        count = 0
        try:
            for row in self._connection.execute(f'select {selected} from "{table}" {where}'):
                count += 1
                yield row
        except DAMAGED as error:
            if tell:
                self._broken(table, f"{_said(error)} after {count} rows")

    def count(self, table: str) -> int:
        """Rows of `table`; 0 where it cannot be told."""
        try:
            return self._number(table, "count(*)")
        except DAMAGED as error:
            self._broken(table, _said(error))
            return 0

    def latest(self, names: Sequence[str]) -> int:
        """The latest time in the tables called `names`, in ns; 0 where there is none."""
        latest = 0
        for table in (table for name in names for table in self.tables(name)):
            for column in sorted({"start", "end"} & self._columns[table]):
                with contextlib.suppress(*DAMAGED):  # who reads the rows will tell
                    latest = max(
                        latest,
                        self._number(table, f'max(case when "{column}" < {MOST_NS} then "{column}" end)'),
                    )
        return latest

    def distinct(self, names: Sequence[str], what: dict[str, str]) -> set[int]:
        """Whole numbers that `what` makes of a column, over the tables called `names` that have it."""
        found: set[int] = set()
        for table in (table for name in names for table in self.tables(name)):
            for column in sorted(what.keys() & self._columns[table]):
                with contextlib.suppress(*DAMAGED):  # who reads the rows will tell
                    rows = self._connection.execute(f'select distinct {what[column]} from "{table}"')
                    found.update(value for (value,) in rows if isinstance(value, int))
        return found

    def check(self) -> None:
        """Have SQLite look for rows that are gone without a trace, where nothing else was wrong."""
        if self._told or not self._complete:
            return
        try:
            (found,) = self._connection.execute("pragma quick_check(1)").fetchone()
        except DAMAGED as error:
            found = _said(error)
        if found != "ok":
            self._broken("the file", " ".join(str(found).split()))

    def name(self, value: object, otherwise: str) -> Raw:
        """A name as JSON: of a string id, or as it stands; `otherwise` where there is none."""
        return _json(self.text(value) or otherwise)

    def _number(self, table: str, what: str) -> int:
        (found,) = self._connection.execute(f'select {what} from "{table}"').fetchone()
        return as_ns(found) or 0

    def _text(self, value: object) -> str | None:
        if value is None or isinstance(value, str):
            return value
        if not self._columns.get("StringIds"):
            return None
        if self._keyed:
            return self._look_up(value)
        if self._every_string is None:
            self._every_string = dict(self.rows_of("StringIds", ["id", "value"]))
        return self._every_string.get(value)

    def _look_up(self, value: object) -> str | None:
        try:
            row = self._connection.execute(
                'select "value" from "StringIds" where "id" = ?', (value,)
            ).fetchone()
        except DAMAGED as error:
            self._broken("StringIds", f"{_said(error)}: some names are missing")
            return None
        return None if row is None or row[0] is None else str(row[0])

    def _read_schema(self) -> dict[str, frozenset[str]]:
        names = self._connection.execute("select name from sqlite_master where type = 'table' order by name")
        return {
            name: frozenset(row[1] for row in self._connection.execute(f'pragma table_info("{name}")'))
            for (name,) in names.fetchall()
            if '"' not in name
        }

    def _has_key(self, table: str, column: str) -> bool:
        described = self._connection.execute(f'pragma table_info("{table}")')
        return any(row[1] == column and row[5] for row in described)

    def _decode(self, text: bytes) -> str:
        try:
            return text.decode()
        except UnicodeDecodeError:
            decoded = text.decode("utf-8", "replace")
            self.replaced += decoded.count("\ufffd")
            return decoded

    def _broken(self, table: str, reason: str) -> None:
        """Tell it, once: a table is read several times."""
        if table in self._told:
            return
        self._told.add(table)
        kind = "corrupt" if self._complete else "truncated"
        self._damage.append(Damage(str(self.path), kind, f"{table}: {reason}"))

    def _kind(self) -> str:
        return "a corrupt" if self._complete else "a truncated"


@functools.lru_cache(_CACHED_STRINGS)
def _json(text: str) -> Raw:
    return Raw(msgspec.json.encode(text))


def _said(error: BaseException) -> str:
    text = error.object.decode("utf-8", "replace") if isinstance(error, UnicodeDecodeError) else str(error)
    return " ".join(text.split())


def _is_whole(path: Path) -> bool:
    """Whether the file has as many bytes as its first page says."""
    head = first_bytes(path, _HEADER_BYTES)
    if len(head) < _HEADER_BYTES:
        return False
    page = int.from_bytes(head[_PAGE_SIZE_AT], "big")
    page = 1 << 16 if page == 1 else page
    return path.stat().st_size >= page * int.from_bytes(head[_PAGE_COUNT_AT], "big")


def first_bytes(path: Path, count: int) -> bytes:
    """The first `count` bytes of a file, fewer where it is shorter. Raises `ReadError`, `VanishedError`."""
    try:
        with path.open("rb") as stream:
            return stream.read(count)
    except FileNotFoundError as error:
        raise VanishedError(f"{path}: {error.strerror}") from error
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror or error}") from error
