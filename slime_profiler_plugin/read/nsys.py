"""Nsight Systems reports: an ``.sqlite`` export, or an ``.nsys-rep`` that the installed ``nsys`` exports.

Times are ns from the start of the session, whose Unix time the export states. Tables come one after the
other; nothing is sorted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from ._damage import Damage
from ._nsys_cuda import ACTIVITIES, CALLS, CudaTables
from ._nsys_database import Database
from ._nsys_nvtx import MARK, TABLE, NvtxTable
from ._nsys_places import Places, process_key
from ._nsys_report import export_report, is_nsys_report
from ._nsys_times import as_ns
from .kineto import TraceEvent, TraceHeader, TraceRefusedError

__all__ = [
    "NsysPhase",
    "is_nsys_report",
    "nsys_phases",
    "nsys_pieces",
    "read_nsys_header",
]

#: Events in one piece: about a megabyte of text.
_PIECE: Final = 4096
_DRAWN: Final = (*(a.table for a in ACTIVITIES), *(c.table for c in CALLS), TABLE)
#: Names, settings and details that other tables refer to.
_SUPPORT: Final = (
    "StringIds",
    "ENUM_",
    "META_DATA_",
    "EXPORT_META_DATA",
    "TARGET_INFO_",
    "ANALYSIS_",
    "PROCESSES",
    "ProcessStreams",
    "ThreadNames",
    "NVTX_PAYLOAD_",
    "sqlite_",
)
#: Tables with one of these columns hold events.
_TIMES: Final = frozenset({"start", "end", "timestamp", "rawTimestamp", "timestampNs"})
_VERSIONS: Final = {
    "EXPORT_PRODUCT_VERSION": "nsys_version",
    "EXPORT_SCHEMA_VERSION": "nsys_schema",
}


class NsysPhase(NamedTuple):
    """An NVTX range or mark. Times are Unix ns by the report's own clock.

    `rollout` is the payload where it is a whole number. `end_unix_ns` is ``None`` for a range that the
    capture did not see the end of, and equal to the start for a mark.
    """

    pid: int
    name: str
    rollout: int | None
    start_unix_ns: int
    end_unix_ns: int | None
    domain: str


def read_nsys_header(path: Path) -> TraceHeader:
    """What a report says of itself.

    `base_ns` is ``None`` when it does not say when its session began: then its clock is unknown. `identity`
    has the host where the report names it. Raises `TraceRefusedError` for what is no report, or one that
    cannot be exported here, and `ReadError`.
    """
    with closing(_open(path, [])) as database:
        base = next(database.rows("TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"]), (None,))[0]
        host = next(
            (
                value
                for name, value in database.rows("TARGET_INFO_SYSTEM_ENV", ["name", "value"])
                if name == "Hostname" and isinstance(value, str) and value
            ),
            None,
        )
        metadata: dict[str, Any] = {
            _VERSIONS[name]: value
            for table in ("EXPORT_META_DATA", "META_DATA_EXPORT")
            for name, value in database.rows(table, ["name", "value"])
            if name in _VERSIONS and isinstance(value, str)
        }
        base_ns = as_ns(base)
        is_time = base_ns is not None and base_ns > 0
        return TraceHeader({"host": host} if host else {}, [], base_ns if is_time else None, [], metadata)


def nsys_pieces(path: Path, damage: list[Damage]) -> Iterator[list[TraceEvent]]:
    """The events of a report, relative to its `read_nsys_header().base_ns`; the same each time.

    What cannot be read is added to `damage`, and tables that hold events of a kind that is not drawn, as
    ``unread``. Raises what `read_nsys_header` raises.
    """
    with closing(_open(path, damage)) as database:
        events = _events(database, path, damage)
        while piece := list(islice(events, _PIECE)):
            yield piece


def nsys_phases(path: Path, domain: str | None = None) -> Iterator[NsysPhase]:
    """NVTX ranges and marks of `domain`, or of every domain, in the order of the report.

    Raises what `read_nsys_header` raises, and `TraceRefusedError` when the report does not say when it began.
    """
    base = read_nsys_header(path).base_ns
    if base is None:
        raise TraceRefusedError(f"{path}: does not say when its session began: its clock is unknown")
    with closing(_open(path, [])) as database:
        for row in NvtxTable(database).rows():
            if domain not in (None, row.domain) or not isinstance(row.global_tid, int):
                continue
            end = row.start if row.kind is MARK else row.end
            yield NsysPhase(
                process_key(row.global_tid) & 0xFF_FFFF,
                row.text,
                row.payload if isinstance(row.payload, int) else None,
                base + row.start,
                None if end is None else base + end,
                row.domain,
            )


def _open(path: Path, damage: list[Damage]) -> Database:
    return Database(export_report(path) if is_nsys_report(path) else path, damage)


def _events(database: Database, path: Path, damage: list[Damage]) -> Iterator[TraceEvent]:
    places = Places(database, _DRAWN)
    nvtx = NvtxTable(database, places)
    cuda = CudaTables(database, places)
    end_ns = database.latest(_DRAWN)
    yield from nvtx.events(places, end_ns)
    for calls in CALLS:
        yield from cuda.calls(calls, end_ns)
    for activity in ACTIVITIES:
        yield from cuda.activities(activity, end_ns)

    database.check()

    def note(kind: str, reason: str, lost: int = 0) -> None:
        damage.append(Damage(str(path), kind, reason, None, lost))

    if bad := nvtx.bad + cuda.bad:
        note("corrupt", f"{bad} rows whose times are no numbers of ns", bad)
    if database.replaced:
        note("replaced", f"{database.replaced} bytes that are not UTF-8 were replaced")
    if cuda.launches.ambiguous:
        note(
            "unread", f"{cuda.launches.ambiguous} correlation ids of several calls of one process: no arrows"
        )
    if cuda.launches.homeless:
        note(
            "unread",
            f"{cuda.launches.homeless} activities do not say which of several processes is theirs: no arrows",
        )
    for event_type, count in sorted(nvtx.unread.items(), key=str):
        note("unread", f"{count} rows of {TABLE} of type {event_type} are not read")
    for table, count in _unread(database):
        note("unread", f"{count} rows of {table} are not read")


def _unread(database: Database) -> Iterator[tuple[str, int]]:
    drawn = {table for name in _DRAWN for table in database.tables(name)}
    for table in database.all_tables():
        if table in drawn or table.startswith(_SUPPORT):
            continue
        if _TIMES & database.columns(table) or table.startswith("CUPTI_ACTIVITY_KIND_"):
            count = database.count(table)
            if count:
                yield table, count
