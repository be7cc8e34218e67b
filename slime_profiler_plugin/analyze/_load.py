"""Record files into the table ``loading.lines``: by the engine itself, and damaged ones by our own reader."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from slime_profiler_plugin import schema
from slime_profiler_plugin.layout import RECORD_FILE, RunPaths
from slime_profiler_plugin.read import Damage, LinesRefusedError, ReadError, Segment, list_sources, read_lines

from ._engine import load_duckdb

#: Every field of a line that a table needs, with the type it has there.
_FIELDS: Final = {
    "kind": "VARCHAR",
    "version": "VARCHAR",
    "run_id": "VARCHAR",
    "attempt": "BIGINT",
    "host": "VARCHAR",
    "pid": "BIGINT",
    "incarnation": "VARCHAR",
    "start_unix_ns": "BIGINT",
    "clock_domain": "VARCHAR",
    "role": "VARCHAR",
    "rank": "BIGINT",
    "ranks": "JSON",
    "world_size": "BIGINT",
    "engine": "JSON",
    "id": "BIGINT",
    "name": "VARCHAR",
    "start_ns": "BIGINT",
    "dur_ns": "BIGINT",
    "seen_ns": "BIGINT",
    "at_ns": "BIGINT",
    "mono_ns": "BIGINT",
    "unix_ns": "BIGINT",
    "error_ns": "BIGINT",
    "tid": "BIGINT",
    "task": "BIGINT",
    "parent": "BIGINT",
    "rollout": "VARCHAR",
    "step": "BIGINT",
    "bytes": "BIGINT",
    "tensors": "BIGINT",
    "bucket": "BIGINT",
    "transport": "VARCHAR",
    "sync": "BIGINT",
    "source": "VARCHAR",
    "weight_version": "VARCHAR",
    "error": "VARCHAR",
    "attrs": "JSON",
    "device_type": "VARCHAR",
    "device_index": "BIGINT",
    "uncertainty_ns": "BIGINT",
    "what": "VARCHAR",
    "reason": "VARCHAR",
    "count": "BIGINT",
}
_COLUMNS: Final = ", ".join(f"{name} {kind}" for name, kind in _FIELDS.items())
#: Lines without one of these are unreadable, and so are those whose number is none.
_NEEDED: Final = {
    "process": ("run_id", "attempt", "host", "pid", "incarnation", "start_ns", "start_unix_ns"),
    "phase": ("id", "name", "start_ns", "tid", "dur_ns"),
    "open": ("id", "name", "start_ns", "tid", "seen_ns"),
    "mark": ("name", "start_ns", "tid"),
    "device": ("id", "start_ns", "dur_ns", "uncertainty_ns"),
    "clock": ("mono_ns", "unix_ns", "error_ns"),
}
#: Half the range of 64-bit nanoseconds: with an offset that is no larger, a time still fits.
FARTHEST_NS: Final = 2**62
_UNREADABLE: Final = "kind IS NULL " + "".join(
    f"OR (kind = '{kind}' AND ({' OR '.join(f'{name} IS NULL' for name in names)})) "
    for kind, names in _NEEDED.items()
)
_IMPOSSIBLE: Final = (
    f"kind IN ('phase', 'open', 'mark', 'device') AND (start_ns < 0 OR coalesce(dur_ns, 0) < 0 "
    f"OR start_ns > {FARTHEST_NS} - coalesce(dur_ns, 0) OR coalesce(seen_ns, 0) > {FARTHEST_NS})"
)
#: The engine takes these in a name for a pattern.
_PATTERN: Final = frozenset("*?[]{}")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
#: So many re-encoded lines are written at once.
_BATCH: Final = 5000

CREATE: Final = (
    "CREATE SCHEMA IF NOT EXISTS loading",
    """CREATE TABLE IF NOT EXISTS loading.files (file INTEGER, path VARCHAR, folder VARCHAR, stem VARCHAR,
    size BIGINT, mtime_ns BIGINT, inode BIGINT)""",
    """CREATE TABLE IF NOT EXISTS loading.damage (file INTEGER, path VARCHAR, kind VARCHAR, line BIGINT,
    lost BIGINT, reason VARCHAR)""",
    f"CREATE TABLE IF NOT EXISTS loading.lines (file INTEGER, {_COLUMNS})",
)


def path_text(path: Path | str) -> str:
    """A path as the engine can keep it: of a name that is no UTF-8, the other bytes are written out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


class RecordFile(NamedTuple):
    """A segment on disk: its identity decides whether it must be read again."""

    path: Path
    folder: str
    stem: str
    size: int
    mtime_ns: int
    inode: int


def find_files(folder: Path, damage: list[Damage]) -> list[RecordFile]:
    """The record files of the run in `folder`; of two with one segment number, the one not compressed."""
    found: dict[tuple[str, str, str], RecordFile] = {}
    for path in list_sources(RunPaths.at(folder).records, damage):
        match = RECORD_FILE.fullmatch(path.name)
        if match is None:
            continue
        try:
            about = path.stat()
        except FileNotFoundError:  # it has another name meanwhile, and is found under that the next time
            continue
        except OSError as error:
            damage.append(Damage(str(path), "refused", error.strerror or str(error)))
            continue
        if not stat.S_ISREG(about.st_mode):  # a pipe would keep us waiting for ever
            damage.append(Damage(str(path), "refused", "not a file"))
            continue
        stem, segment = f"{match['pid']}-{match['start']}", match["segment"] or ""
        each = RecordFile(
            path, path_text(path.parent.name), stem, about.st_size, about.st_mtime_ns, about.st_ino
        )
        key = (each.folder, stem, segment)
        if key not in found or match["gz"] is None:
            found[key] = each
    return list(found.values())


def load_files(connection: Any, files: Sequence[tuple[int, RecordFile]], scratch: Path) -> None:
    """Add the lines of `files`, each under its number, and what is wrong with them."""
    odd = [number for number, each in files if _is_odd(each.path)]
    plain = [(number, each) for number, each in files if not _is_odd(each.path)]
    if plain:
        try:
            _load_plain(connection, plain)
            odd += _damaged(connection, [number for number, _ in plain])
        except load_duckdb().Error:  # one file that it cannot open costs it all; our reader says which
            odd = [number for number, _ in files]
    by_number = dict(files)
    for number in sorted(set(odd)):
        connection.execute("DELETE FROM loading.lines WHERE file = ?", [number])
        _load_carefully(connection, number, by_number[number].path, scratch)


def _is_odd(path: Path) -> bool:
    """Whether the engine cannot open a file of that name, or would open others."""
    name = str(path.absolute())
    return bool(_PATTERN & set(name) or _SURROGATE.search(name))


def _load_plain(connection: Any, files: Sequence[tuple[int, RecordFile]]) -> None:
    connection.execute("CREATE OR REPLACE TEMP TABLE names (file INTEGER, path VARCHAR)")
    connection.executemany("INSERT INTO names VALUES (?, ?)", [(n, str(f.path.absolute())) for n, f in files])
    _insert(
        connection,
        "n.file",
        [str(f.path.absolute()) for _, f in files],
        "JOIN names n ON n.path = r.filename",
    )


def _insert(connection: Any, number: str, paths: list[str], join: str) -> None:
    names = ", ".join(f"r.{name}" for name in _FIELDS)
    types = ", ".join(f"{name}: '{kind}'" for name, kind in _FIELDS.items())
    connection.execute(
        f"INSERT INTO loading.lines SELECT {number}, {names} FROM read_ndjson(?, columns = {{{types}}}, "
        f"ignore_errors = true, filename = true) r {join} WHERE r.kind IS DISTINCT FROM 'phase_def'",
        [paths],
    )


def _damaged(connection: Any, numbers: Sequence[int]) -> list[int]:
    """Files with a line that is not as it should be, or of a newer major version."""
    newer = "coalesce(try_cast(split_part(version, '.', 1) AS INTEGER), 99) > " + str(schema.VERSION[0])
    query = (
        "SELECT DISTINCT file FROM loading.lines WHERE list_contains(?, file) "
        f"AND ({_UNREADABLE} OR ({_IMPOSSIBLE}) OR (kind = 'process' AND {newer}))"
    )
    found = {row[0] for row in connection.execute(query, [list(numbers)]).fetchall()}
    headed = {
        row[0]
        for row in connection.execute(
            "SELECT DISTINCT file FROM loading.lines WHERE kind = 'process' AND list_contains(?, file)",
            [list(numbers)],
        ).fetchall()
    }
    return sorted(found | (set(numbers) - headed))


def _load_carefully(connection: Any, number: int, path: Path, scratch: Path) -> None:
    """By our own reader, which names each bad line and salvages what follows a torn one."""
    damage: list[Damage] = []
    copy = scratch / "lines.jsonl"
    try:
        with copy.open("wb") as stream:
            stream.writelines(_encoded(path, damage))
    except (LinesRefusedError, ReadError) as error:
        damage.append(Damage(str(path), "refused", str(error).removeprefix(f"{path}: ")))
        copy.write_bytes(b"")
    if copy.stat().st_size:
        _insert(connection, str(number), [str(copy)], "")
    elif not damage:
        damage.append(Damage(str(path), "refused", "the file is empty"))
    for what, reason in ((_UNREADABLE, "a number beyond 64 bits"), (_IMPOSSIBLE, "an impossible time")):
        (lost,) = connection.execute(
            f"SELECT count(*) FROM loading.lines WHERE file = ? AND ({what})", [number]
        ).fetchone()
        if lost:
            damage.append(Damage(str(path), "corrupt", reason, lost=lost))
            connection.execute(f"DELETE FROM loading.lines WHERE file = ? AND ({what})", [number])
    copy.unlink()
    add_damage(connection, number, damage)


def _encoded(path: Path, damage: list[Damage]) -> Iterator[bytes]:
    batch: list[schema.Line] = []
    for item in read_lines([Segment(path)], damage):
        if not isinstance(item.line, schema.Unknown):
            batch.append(item.line)
        if len(batch) >= _BATCH:
            yield schema.encode_lines(batch)
            batch = []
    yield schema.encode_lines(batch)


def add_damage(connection: Any, number: int | None, damage: Sequence[Damage]) -> None:
    """Keep what was wrong, beside the file's number; ``None`` is for what lies in no file."""
    for each in damage:
        connection.execute(
            "INSERT INTO loading.damage VALUES (?, ?, ?, ?, ?, ?)",
            [
                number,
                path_text(each.file),
                each.kind,
                each.line,
                max(each.lost, each.line is not None),
                path_text(each.reason),
            ],
        )
