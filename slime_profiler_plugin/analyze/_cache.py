"""The cache: one DuckDB file per run folder, brought up to date by what changed on disk.

A new version is made beside the old one and takes its name when it is whole, so whoever reads the old one
goes on doing so. Everything in the folder may be deleted at any time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from slime_profiler_plugin.read import Damage, ReadError, check_run_folder

from ._engine import connect, load_duckdb
from ._load import CREATE, RecordFile, add_damage, find_files, load_files, path_text
from ._tables import derive_tables

#: A cache of another layout has another name.
_LAYOUT: Final = 4


class CacheState(NamedTuple):
    """What bringing the cache up to date took: files read and unchanged, seconds, bytes on disk."""

    path: Path
    files_read: int
    files_unchanged: int
    seconds: float
    bytes: int

    def __str__(self) -> str:
        return (
            f"tables: {self.files_read} files read, {self.files_unchanged} unchanged, {self.seconds:.1f} s, "
            f"{self.bytes / 1e6:.1f} MB in {self.path}"
        )


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/slime-profiler/tables``, by default below ``~/.cache``."""
    told = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(told) if os.path.isabs(told) else Path.home() / ".cache"
    return base / "slime-profiler" / "tables"


def update_cache(run: Path, folder: Path | None = None, *, anew: bool = False) -> CacheState:
    """Bring the tables of the run in `run` up to date, in `folder`, by default `cache_folder`.

    With `anew`, nothing of what is there is used. Raises `FolderOfRunsError` and `ReadError` for what is no
    run, or when the cache cannot be written, and `TablesUnavailableError`.
    """
    check_run_folder(run)
    duckdb = load_duckdb()
    begun = time.perf_counter()
    folder = folder or cache_folder()
    key = hashlib.sha256(os.fsencode(run.resolve())).hexdigest()[:24]
    path = folder / f"{key}-{_LAYOUT}.duckdb"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone(path.with_suffix(".lock")):
            read, unchanged = _update(run, path, anew=anew)
    except (OSError, duckdb.Error) as error:
        # The engine says in many words that its database is of no use now; the reason stands behind them.
        reason = str(error).rpartition("Original error: ")[2].partition("\n")[0]
        raise ReadError(f"the cache {folder} cannot be written: {reason}; set XDG_CACHE_HOME") from error
    return CacheState(path, read, unchanged, time.perf_counter() - begun, path.stat().st_size)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time makes a run's tables; the others wait and find them made."""
    with lock.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _update(run: Path, path: Path, *, anew: bool) -> tuple[int, int]:
    damage: list[Damage] = []
    files = find_files(run, damage)
    known = None if anew else _known_files(path)
    wanted = {path_text(each.path.resolve()): each for each in files}
    scratch_prefix = f".making-{path.stem}-"
    for left in path.parent.glob(f"{scratch_prefix}*"):  # by a process that was killed: nobody else is here
        shutil.rmtree(left, ignore_errors=True)
    if known is not None and known == {name: _identity(each) for name, each in wanted.items()} and not damage:
        return 0, len(files)
    with tempfile.TemporaryDirectory(prefix=scratch_prefix, dir=path.parent) as scratch:
        new = Path(scratch) / "tables.duckdb"
        if known is not None:
            shutil.copyfile(path, new)
        changed = [n for n, each in wanted.items() if (known or {}).get(n) != _identity(each)]
        gone = [name for name in known or {} if name not in wanted]
        connection = connect(new, read_only=False, temporary=Path(scratch))
        try:
            _apply(connection, {n: wanted[n] for n in changed}, gone, damage, Path(scratch))
        finally:
            connection.close()
        os.replace(new, path)
    return len(changed), len(files) - len(changed)


def _identity(each: RecordFile) -> tuple[int, int, int]:
    return each.size, each.mtime_ns, each.inode


def _known_files(path: Path) -> dict[str, tuple[int, int, int]] | None:
    """The files in the cache with what told them apart; ``None`` where there is none that can be used."""
    if not path.exists():
        return None
    try:
        connection = connect(path, read_only=True)
    except load_duckdb().Error:  # of another version of the engine, or damaged: it is made anew
        with suppress(FileNotFoundError):
            path.unlink()
        return None
    try:
        rows = connection.execute("SELECT path, size, mtime_ns, inode FROM loading.files").fetchall()
    except load_duckdb().Error:  # not one of ours
        return None
    finally:
        connection.close()
    return {row[0]: row[1:] for row in rows}


def _apply(
    connection: Any, changed: dict[str, RecordFile], gone: list[str], damage: list[Damage], scratch: Path
) -> None:
    for statement in CREATE:
        connection.execute(statement)
    connection.execute("DELETE FROM loading.damage WHERE file IS NULL")
    stale = [*changed, *gone]
    for table in ("lines", "damage"):
        connection.execute(
            f"DELETE FROM loading.{table} WHERE file IN "
            f"(SELECT file FROM loading.files WHERE list_contains(?, path))",
            [stale],
        )
    connection.execute("DELETE FROM loading.files WHERE list_contains(?, path)", [stale])
    (last,) = connection.execute("SELECT coalesce(max(file), 0) FROM loading.files").fetchone()
    numbered = list(enumerate(changed.values(), last + 1))
    if numbered:
        connection.executemany(
            "INSERT INTO loading.files VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(n, path_text(f.path.resolve()), f.folder, f.stem, *_identity(f)) for n, f in numbered],
        )
        load_files(connection, numbered, scratch)
    add_damage(connection, None, damage)
    derive_tables(connection)
    connection.execute("CHECKPOINT")
