"""Arrows from `bucket_send` to `engine_receive`: rule 9.

They join by (run, attempt, source incarnation, sync, bucket). What does not say all of
that is joined by weight version where that leaves one possibility; else no arrow is drawn, and
that is counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable
from typing import Any, Final, NamedTuple

from ._flows import IdSource
from ._source import ENCODER, raw_us

_CATEGORY: Final = "weight_sync"


class Endpoint(NamedTuple):
    """A slice that an arrow may start or end at.

    `free` are the stretches of it, in reference ns, in which no other slice lies over it: an arrow
    binds to the innermost slice. `receiver` tells receiving processes apart, `engine` is what either
    side calls the engine.
    """

    attempt: int
    source: str | None
    sync: int | None
    bucket: int
    weight_version: str | None
    engine: int | str | None
    receiver: Hashable
    pid: int
    tid: int
    start_ns: int
    free: tuple[tuple[int, int], ...]


class ArrowEnd(NamedTuple):
    """One end of an arrow."""

    flow_id: int
    pid: int
    tid: int
    at_ns: int
    begins: bool

    def encode(self, origin_ns: int) -> bytes:
        """As a Chrome flow event."""
        event: dict[str, Any] = {
            "ph": "s" if self.begins else "f",
            "cat": _CATEGORY,
            "name": "bucket",
            "id": self.flow_id,
            "pid": self.pid,
            "tid": self.tid,
            "ts": raw_us(self.at_ns - origin_ns),
        }
        if not self.begins:
            event["bp"] = "e"
        return ENCODER.encode(event)


class Arrows(NamedTuple):
    """The arrows of an output, by the pid whose events they follow; and why others are not drawn."""

    ends: dict[int, list[ArrowEnd]]
    drawn: int
    undrawn: Counter[str]


def join_arrows(sends: list[Endpoint], receives: list[Endpoint], ids: IdSource) -> Arrows:
    """One arrow for each receive that one send explains."""
    exact: dict[tuple[Any, ...], list[Endpoint]] = defaultdict(list)
    by_version: dict[tuple[Any, ...], list[Endpoint]] = defaultdict(list)
    for send in sends:
        if send.source is not None and send.sync is not None:
            exact[send.attempt, send.source, send.sync, send.bucket].append(send)
        if send.weight_version is not None:
            by_version[send.attempt, send.weight_version, send.bucket].append(send)
    repeated = Counter(_receive_key(receive) for receive in receives)
    ends: dict[int, list[ArrowEnd]] = defaultdict(list)
    undrawn: Counter[str] = Counter()
    drawn = 0
    for receive in receives:
        if receive.source is not None and receive.sync is not None:
            found = exact.get((receive.attempt, receive.source, receive.sync, receive.bucket), [])
        elif receive.source is None and receive.weight_version is not None:
            found = by_version.get((receive.attempt, receive.weight_version, receive.bucket), [])
        else:
            undrawn[f"the receive names no {'source' if receive.source is None else 'sync'}"] += 1
            continue
        found = [send for send in found if send.engine in (None, receive.engine)]
        reason = _why_not(found, repeated[_receive_key(receive)])
        arrow = _place(found[0], receive) if reason is None else None
        if arrow is None:
            undrawn[reason or "the receive ended before the send began"] += 1
            continue
        flow_id = ids.new()
        begin, end = arrow
        send = found[0]
        ends[send.pid].append(ArrowEnd(flow_id, send.pid, send.tid, begin, begins=True))
        ends[receive.pid].append(ArrowEnd(flow_id, receive.pid, receive.tid, end, begins=False))
        drawn += 1
    return Arrows(dict(ends), drawn, undrawn)


def _receive_key(receive: Endpoint) -> tuple[Any, ...]:
    sync = receive.sync if receive.source is not None else None
    return (receive.attempt, receive.source, sync, receive.weight_version, receive.bucket, receive.receiver)


def _why_not(found: list[Endpoint], repeated: int) -> str | None:
    if not found:
        return "no send matches the receive"
    if len(found) > 1:
        return "ambiguous: several sends match the receive"
    if repeated > 1:
        return "ambiguous: the engine received the bucket more than once"
    return None


def _place(send: Endpoint, receive: Endpoint) -> tuple[int, int] | None:
    """Times inside both slices, the end after the begin: Perfetto reads flows in order of time.

    (Which way it draws the arrow it takes from the starts of the slices: where an engine was waiting
    already, the head is at the send.)
    """
    for begin, _ in send.free:
        for start, end in receive.free:
            at = max(start, begin + 1)
            if at < end:
                return begin, at
    return None
