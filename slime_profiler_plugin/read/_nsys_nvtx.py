"""NVTX ranges and marks of an Nsight Systems export."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ._nsys_database import Database
from ._nsys_places import Places, process_key
from ._nsys_times import as_ns, microseconds
from .kineto import TraceEvent

TABLE: Final = "NVTX_EVENTS"
#: ``eventType``; the second of each pair came from a text file that was imported.
PUSH_POP, START_END, MARK = frozenset({59, 70}), frozenset({60, 71}), frozenset({34, 65})
_CATEGORY, _THREAD, _DOMAIN = frozenset({33, 64}), frozenset({39, 72}), frozenset({75})
#: Names, and the end of a domain: nothing to draw.
_SILENT: Final = _CATEGORY | _THREAD | _DOMAIN | {76}
_NAMES: Final = ("eventType", "globalTid", "domainId", "category", "text", "textId")
_PAYLOADS: Final = ("int64Value", "uint64Value", "int32Value", "uint32Value", "doubleValue", "floatValue")
_COLUMNS: Final = (
    "start",
    "end",
    "eventType",
    "globalTid",
    "endGlobalTid",
    "domainId",
    "category",
    "color",
    "text",
    "textId",
    "jsonText",
    "jsonTextId",
    *_PAYLOADS,
)
_NO_TEXT: Final = "(no text)"
_CAT: Final = Raw(b'"nvtx"')
_ON_THREAD: Final = Raw(b'"t"')


class NvtxRow(NamedTuple):
    """A range or a mark. Times are ns from the session's start; marks and open ranges have no `end`."""

    kind: frozenset[int]
    start: int
    end: int | None
    global_tid: object
    end_global_tid: object
    domain: str
    category: str | int | None
    color: int | None
    text: str
    payload: int | float | str | None


class NvtxTable:
    """The rows of NVTX in an export."""

    def __init__(self, database: Database, places: Places | None = None) -> None:
        """Reads the names of domains and categories; those of threads go to `places`."""
        self._database = database
        self._domains: dict[tuple[int | None, object], str] = {}
        self._categories: dict[tuple[int | None, object, object], str] = {}
        self._shared_domains: dict[object, str] = {}
        #: Rows with no time that could be used.
        self.bad = 0
        #: Rows that are not drawn, by ``eventType``.
        self.unread: Counter[object] = Counter()
        self._read_names(places)

    def rows(self) -> Iterator[NvtxRow]:
        """Ranges and marks, in the order of the table."""
        for row in self._database.rows(TABLE, _COLUMNS):
            start, end, event_type, thread, end_thread, domain, category, color, text, text_id, *rest = row
            kind = _kind_of(event_type, end)
            if kind is None:
                if event_type not in _SILENT:
                    self.unread[event_type] += 1
                continue
            start_ns, end_ns = as_ns(start), as_ns(end)
            if start_ns is None or (end is not None and end_ns is None):
                self.bad += 1
                continue
            process = process_key(thread) if isinstance(thread, int) else None
            yield NvtxRow(
                kind,
                start_ns,
                end_ns,
                thread,
                end_thread,
                self._domain(process, domain),
                self._categories.get((process, domain, category), category),
                color,
                self._database.text(text) or self._database.text(text_id) or _NO_TEXT,
                self._payload(rest),
            )

    def events(self, places: Places, capture_end_ns: int) -> Iterator[TraceEvent]:
        """The same as slices and instants.

        A push/pop range stands on its thread. Ranges with a start and an end of their own may cross anything:
        those of a domain have a row in their process. An open range reaches to `capture_end_ns`.
        """
        for row in self.rows():
            free = row.kind is START_END
            place = (
                places.row(row.global_tid, f"{row.domain or 'NVTX'} ranges")
                if free
                else places.thread(row.global_tid)
            )
            yield from places.take_new()
            event = TraceEvent(
                ph="i" if row.kind is MARK else "X",
                cat=_CAT,
                name=self._database.name(row.text, _NO_TEXT),
                pid=place.pid,
                tid=place.tid,
                ts=microseconds(row.start),
                args=_args(row, places),
            )
            if row.kind is MARK:
                event.s = _ON_THREAD
            else:
                end = max(capture_end_ns, row.start) if row.end is None else row.end
                event.dur = microseconds(end - row.start)
            yield event

    def _read_names(self, places: Places | None) -> None:
        kinds = ", ".join(map(str, sorted(_CATEGORY | _THREAD | _DOMAIN)))
        for table in self._database.tables(TABLE):
            if "eventType" not in self._database.columns(table):
                continue
            where = f'where "eventType" in ({kinds})'
            for event_type, thread, domain, category, text, text_id in self._database.rows_of(
                table, _NAMES, where, tell=False
            ):
                name = self._database.text(text) or self._database.text(text_id)
                if not name:
                    continue
                process = process_key(thread) if isinstance(thread, int) else None
                if event_type in _DOMAIN:
                    self._domains[process, domain] = name
                    self._shared_domains[domain] = (
                        name if self._shared_domains.get(domain, name) == name else ""
                    )
                elif event_type in _CATEGORY:
                    self._categories[process, domain, category] = name
                elif places is not None and isinstance(thread, int):
                    places.rename_thread(thread, name)

    def _domain(self, process: int | None, domain: object) -> str:
        """Its name in this process; where only others say it, and all the same, theirs."""
        if not domain:
            return ""
        known = self._domains.get((process, domain)) or self._shared_domains.get(domain)
        return known or f"domain {domain}"

    def _payload(self, rest: list[Any]) -> int | float | str | None:
        text, text_id, *numbers = rest
        for number in numbers:
            if isinstance(number, (int, float)):
                return number
        return self._database.text(text) or self._database.text(text_id)


def _kind_of(event_type: object, end: object) -> frozenset[int] | None:
    for kind in (PUSH_POP, START_END, MARK):
        if event_type in kind:
            return kind
    if event_type is None:  # a table without the column
        return MARK if end is None else PUSH_POP
    return None


def _args(row: NvtxRow, places: Places) -> Raw | UnsetType:
    ended_on = None
    if row.end_global_tid is not None and row.end_global_tid != row.global_tid:
        ended_on = places.thread(row.end_global_tid).tid
    is_open = row.end is None and row.kind is not MARK
    return _encode_args(row.domain, row.category, row.payload, row.color, is_open, ended_on)


@functools.lru_cache(1 << 14, typed=True)  # typed: 1 and 1.0 are not the same payload
def _encode_args(
    domain: str, category: object, payload: object, color: object, is_open: bool, ended_on: object
) -> Raw | UnsetType:
    args: dict[str, object] = {}
    if domain:
        args["domain"] = domain
    if category not in (None, 0):
        args["category"] = category
    if payload is not None:
        args["payload"] = payload
    if isinstance(color, int):
        args["color"] = f"#{color & 0xFFFF_FFFF:08x}"
    if is_open:
        args["open"] = True
    if ended_on is not None:
        args["ended on thread"] = ended_on
    return Raw(msgspec.json.encode(args)) if args else UNSET
