"""Events of an Nsight Systems export, as plain values that a test can compare."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Raw

from slime_profiler_plugin.read import Damage, TraceEvent
from slime_profiler_plugin.read.traces import TraceFile, open_trace, read_pieces


class Event(NamedTuple):
    """An event, decoded; times in ns."""

    ph: str
    cat: str
    name: str
    pid: int | str
    tid: int | str
    start: int | None
    dur: int | None
    args: dict[str, Any]
    id: int | str | None


class Read(NamedTuple):
    """All of a report."""

    trace: TraceFile
    events: list[Event]
    damage: list[Damage]

    def of(self, *phs: str) -> list[Event]:
        """Events of these kinds."""
        return [event for event in self.events if event.ph in phs]

    def cat(self, cat: str) -> list[Event]:
        """Slices and instants of a category."""
        return [event for event in self.of("X", "i") if event.cat == cat]

    def arrows(self) -> list[tuple[Event, Event]]:
        """Each start with its end."""
        starts, ends = self.of("s"), self.of("f")
        by_id = {end.id: end for end in ends}
        assert len(by_id) == len(ends) == len(starts), "an id that is used twice, or an end that stands alone"
        return [(start, by_id[start.id]) for start in starts]

    def names(self) -> dict[object, str]:
        """Names of processes by pid and of threads by (pid, tid)."""
        named: dict[object, str] = {}
        for event in self.of("M"):
            if event.name == "process_name":
                named[event.pid] = event.args["name"]
            elif event.name == "thread_name":
                named[event.pid, event.tid] = event.args["name"]
        return named

    def notes(self) -> list[tuple[str, str]]:
        """Kinds and reasons of the damage."""
        return [(damage.kind, damage.reason) for damage in self.damage]


def read_export(path: Path) -> Read:
    """Read a report through the one door that all formats have."""
    trace = open_trace(path)
    assert trace.format == "nsys"
    damage: list[Damage] = []
    events = [_decoded(event) for piece in read_pieces(trace, damage) for event in piece]
    return Read(trace, events, damage)


def _decoded(event: TraceEvent) -> Event:
    return Event(
        event.ph,
        _json(event.cat) or "",
        _json(event.name),
        event.pid,  # type: ignore[arg-type]
        event.tid,  # type: ignore[arg-type]
        _ns(event.ts),
        _ns(event.dur),
        _json(event.args) or {},
        event.id if isinstance(event.id, (int, str)) else None,
    )


def _json(raw: object) -> Any:
    return json.loads(bytes(raw)) if isinstance(raw, Raw) else None


def _ns(raw: object) -> int | None:
    if not isinstance(raw, Raw):
        return None
    ns = Decimal(bytes(raw).decode()) * 1000
    assert ns == int(ns)
    return int(ns)
