"""A merged file read back strictly, and what must hold in every one of them."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

_LARGEST_PID = 2**32 - 1
_LARGEST_ID = 2**63 - 1
_NS_PER_US = 1000
#: Phases that Perfetto shows as a slice each: an E closes the slice of its B, an e that of its b.
SLICES = frozenset("XBbiIRnSTp")
ASYNC = frozenset("benSTFp")
FLOWS = frozenset("stf")


def read_merged(path: Path) -> dict[str, Any]:
    """The whole file; see `parse_strictly`."""
    data = path.read_bytes()
    return parse_strictly(gzip.decompress(data) if path.suffix == ".gz" else data)


def parse_strictly(data: bytes) -> dict[str, Any]:
    """A trace's text. Raises `ValueError` where any strict parser would.

    That is NaN, bad UTF-8, control characters; and lone surrogates, which Python's parser takes.
    """
    with suppress(msgspec.ValidationError):  # a number that no double holds is one all the same
        msgspec.json.decode(data)
    trace = json.loads(data.decode("utf-8"), parse_float=Decimal, parse_constant=_refuse)
    assert isinstance(trace, dict)
    return trace


def events_of(path: Path) -> list[dict[str, Any]]:
    """Its events, the descriptions too; numbers with a fraction as `Decimal`."""
    events: list[dict[str, Any]] = read_merged(path)["traceEvents"]
    return events


def ns(value: int | Decimal) -> int:
    """Microseconds of an event as whole nanoseconds; an `AssertionError` where they are not whole."""
    assert isinstance(value, (int, Decimal)), value
    scaled = Decimal(value) * _NS_PER_US
    assert scaled == int(scaled), value
    return int(scaled)


def find_faults(events: list[dict[str, Any]]) -> list[str]:
    """What no merged file may have: odd ids, times that are no whole ns or negative, crossing slices."""
    faults: list[str] = []
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    flows: dict[int, Counter[str]] = defaultdict(Counter)
    for event in events:
        phase = event["ph"]
        if not isinstance(event.get("pid"), int) or not 0 <= event["pid"] <= _LARGEST_PID:
            faults.append(f"pid: {event}")
        if "tid" in event and (not isinstance(event["tid"], int) or not 0 <= event["tid"] <= _LARGEST_PID):
            faults.append(f"tid: {event}")
        if phase == "M":
            continue
        try:
            if ns(event["ts"]) < 0 or (phase == "X" and ns(event["dur"]) < 0):
                faults.append(f"negative: {event}")
        except (AssertionError, KeyError):
            faults.append(f"no time: {event}")
            continue
        if phase == "X":
            start = ns(event["ts"])
            tracks[event["pid"], event["tid"]].append((start, -ns(event["dur"])))
        elif phase in FLOWS:
            if not isinstance(event["id"], int) or not 0 <= event["id"] <= _LARGEST_ID:
                faults.append(f"id: {event}")
            flows[event["id"]][phase] += 1
    faults += [f"two starts of flow {number}" for number, phases in flows.items() if phases["s"] > 1]
    faults += [f"{count} crossing slices on {track}" for track, count in count_crossings(tracks).items()]
    return faults


def count_crossings(tracks: dict[Any, list[tuple[int, int]]]) -> dict[Any, int]:
    """Slices, as (start, -length) in ns, that begin within another of their track and end behind it."""
    found = {}
    for track, slices in tracks.items():
        open_ends: list[int] = []
        crossing = 0
        for start, length in sorted(slices):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            if open_ends and start - length > open_ends[-1]:
                crossing += 1
            open_ends.append(start - length)
        if crossing:
            found[track] = crossing
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
