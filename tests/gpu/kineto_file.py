"""What the checks read from a Kineto trace: kernels of an annotation, and who synchronised."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})


@dataclass(frozen=True)
class Event:
    """A complete event; times are nanoseconds since the epoch."""

    name: str
    category: str
    tid: str
    begin_ns: int
    end_ns: int
    correlation: int | None


def read_events(path: Path) -> list[Event]:
    """The complete events of a trace whose times are relative to its base."""
    trace: dict[str, Any] = json.loads(path.read_text(), parse_float=Decimal)
    base = int(trace.get("baseTimeNanoseconds", 0))
    events = []
    for raw in trace["traceEvents"]:
        if raw.get("ph") != "X":
            continue
        begin = base + int(Decimal(raw["ts"]) * 1000)
        correlation = raw.get("args", {}).get("correlation")
        events.append(
            Event(
                raw["name"],
                raw.get("cat", ""),
                str(raw["tid"]),
                begin,
                begin + int(Decimal(raw["dur"]) * 1000),
                None if correlation is None else int(correlation),
            )
        )
    return events


def kernels_of(events: list[Event], annotation: str) -> list[Event]:
    """The work on the device that was launched inside the annotation of that name."""
    (outer,) = (e for e in events if e.name == annotation and e.category == "user_annotation")
    launched = {
        e.correlation
        for e in events
        if e.category in _LAUNCHES
        and e.tid == outer.tid
        and outer.begin_ns <= e.begin_ns
        and e.end_ns <= outer.end_ns
    }
    return [e for e in events if e.category in _ON_DEVICE and e.correlation in launched]


def names_in(events: list[Event], category: str) -> set[str]:
    """Names of the events of a category."""
    return {e.name for e in events if e.category == category}


def synchronizing_calls(events: list[Event]) -> dict[str, int]:
    """Calls of the runtime and the driver that wait for the device, by name."""
    counts: dict[str, int] = {}
    for event in events:
        if event.category in _LAUNCHES and "synchronize" in event.name.lower():
            counts[event.name] = counts.get(event.name, 0) + 1
    return counts
