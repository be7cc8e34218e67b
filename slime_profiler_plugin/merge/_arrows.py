"""Arrows from what sends weights to what receives them: rule 9.

They join by (run, attempt, source incarnation, sync), and by bucket where each is received by itself.
What does not say all of that is joined by weight version where that leaves one possibility; else no
arrow is drawn, and that is counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from ._flows import IdSource
from ._pairs import Pair
from ._source import ENCODER, raw_us

_CATEGORY: Final = "weight_sync"


class Endpoint(NamedTuple):
    """A slice that arrows of `pair` may start or end at, as `begins` says.

    `free` are the stretches of it, in reference ns, in which no other slice lies over it: an arrow
    binds to the innermost slice. `version_reused`: over the whole run, `weight_version` is that of several
    syncs, whether or not their sends are in this output. `receiver` tells receiving processes apart,
    `engine` and `group` are what either side calls the engine, and what the weights travel through.
    """

    pair: Pair
    begins: bool
    attempt: int
    source: str | None
    sync: int | None
    bucket: int | None
    weight_version: str | None
    version_reused: bool
    engine: int | str | None
    group: str | None
    transport: str | None
    receiver: Hashable
    pid: int
    tid: int
    start_ns: int
    end_ns: int
    free: tuple[tuple[int, int], ...]

    def key(self, *sync: Hashable) -> tuple[Hashable, ...]:
        """Equal for both ends of an arrow; `sync` is what tells the sync."""
        return (self.pair, self.attempt, *sync, self.bucket if self.pair.by_bucket else None)


class ArrowEnd(NamedTuple):
    """One end of an arrow."""

    flow_id: int
    name: str
    pid: int
    tid: int
    at_ns: int
    begins: bool

    def encode(self, origin_ns: int) -> bytes:
        """As a Chrome flow event."""
        event: dict[str, Any] = {
            "ph": "s" if self.begins else "f",
            "cat": _CATEGORY,
            "name": self.name,
            "id": self.flow_id,
            "pid": self.pid,
            "tid": self.tid,
            "ts": raw_us(self.at_ns - origin_ns),
        }
        if not self.begins:
            event["bp"] = "e"
        return ENCODER.encode(event)


class Arrows(NamedTuple):
    """The arrows of an output, by the pid whose events they follow.

    `drawn`: how many, by pair. `undrawn`: how many others, by pair and reason.
    """

    ends: dict[int, list[ArrowEnd]]
    drawn: Counter[str]
    undrawn: Counter[str]


def join_arrows(endpoints: Iterable[Endpoint], ids: IdSource) -> Arrows:
    """An arrow to each receive from each send that explains a part of it."""
    sends: dict[tuple[Hashable, ...], list[Endpoint]] = defaultdict(list)
    receives = []
    for endpoint in endpoints:
        if not endpoint.begins:
            receives.append(endpoint)
            continue
        if endpoint.source is not None and endpoint.sync is not None:
            sends[endpoint.key(endpoint.source, endpoint.sync)].append(endpoint)
        if endpoint.weight_version is not None:
            sends[endpoint.key(endpoint.weight_version)].append(endpoint)
    repeated = Counter(_receive_key(receive) for receive in receives)
    ends: dict[int, list[ArrowEnd]] = defaultdict(list)
    drawn: Counter[str] = Counter()
    undrawn: Counter[str] = Counter()
    for receive in receives:
        found, reasons = _find_sends(receive, sends, repeated[_receive_key(receive)])
        for send in found:
            arrow = _place(send, receive)
            if arrow is None:
                reasons.append(_why_not_placed(send, receive))
                continue
            flow_id, name = ids.new(), receive.pair.word
            begin, end = arrow
            ends[send.pid].append(ArrowEnd(flow_id, name, send.pid, send.tid, begin, begins=True))
            ends[receive.pid].append(ArrowEnd(flow_id, name, receive.pid, receive.tid, end, begins=False))
            drawn[str(receive.pair)] += 1
        undrawn.update(f"{receive.pair}: {reason}" for reason in reasons)
    return Arrows(dict(ends), drawn, undrawn)


def _receive_key(receive: Endpoint) -> tuple[Hashable, ...]:
    sync = receive.sync if receive.source is not None else None
    return receive.key(receive.source, sync, receive.weight_version, receive.receiver, receive.group)


def _find_sends(
    receive: Endpoint, sends: dict[tuple[Hashable, ...], list[Endpoint]], repeated: int
) -> tuple[list[Endpoint], list[str]]:
    """The sends that a receive is explained by, and why it is not by others."""
    if receive.pair.transport is not None and receive.transport is None:
        # It may be of another transport, and then no end of an arrow: only one that would be drawn is told.
        named = receive._replace(transport=receive.pair.transport)
        return [], ["the receive names no transport"] if _find_sends(named, sends, repeated)[0] else []
    if receive.source is not None and receive.sync is not None:
        key = receive.key(receive.source, receive.sync)
    elif receive.source is None and receive.weight_version is not None:
        if receive.version_reused:
            return [], ["ambiguous: the weight version is that of several syncs"]
        key = receive.key(receive.weight_version)
    else:
        return [], [f"the receive names no {'source' if receive.source is None else 'sync'}"]
    found = [send for send in sends.get(key, ()) if _is_for(send, receive)]
    if not found:
        return [], ["no send matches the receive"]
    if len({(send.source, send.sync) for send in found}) > 1:
        return [], ["ambiguous: several sends match the receive"]
    if repeated > 1:
        return [], ["ambiguous: the engine received it more than once"]
    # A process that does not number its files has written one.
    parts: dict[tuple[str, int], list[Endpoint]] = defaultdict(list)
    for send in found:
        parts[("pid", send.pid) if send.bucket is None else ("bucket", send.bucket)].append(send)
    several = [same for same in parts.values() if len(same) > 1]
    return _only(parts.values()), ["ambiguous: several sends match the receive"] * len(several)


def _is_for(send: Endpoint, receive: Endpoint) -> bool:
    """Whether the send names the engine of the receive, as number or as text, or none, and no other group."""
    if None not in (send.group, receive.group) and send.group != receive.group:
        return False
    return send.engine is None or (receive.engine is not None and str(send.engine) == str(receive.engine))


def _only(groups: Iterable[Sequence[Endpoint]]) -> list[Endpoint]:
    return [group[0] for group in groups if len(group) == 1]


def _place(send: Endpoint, receive: Endpoint) -> tuple[int, int] | None:
    """Times inside both slices, the end after the begin: Perfetto reads flows in order of time.

    (Which way it draws the arrow it takes from the starts of the slices: where an engine was waiting
    already, the head is at the send.)
    """
    if not send.free:
        return None
    begin, _ = send.free[0]
    for start, end in receive.free:
        at = max(start, begin + 1)
        if at < end:
            return begin, at
    return None


def _why_not_placed(send: Endpoint, receive: Endpoint) -> str:
    for word, endpoint in (("send", send), ("receive", receive)):
        if endpoint.start_ns == endpoint.end_ns:
            return f"the {word} lasted 0 ns"
    if receive.end_ns <= send.start_ns + 1:
        return "the receive ended before the send began"
    return "other phases cover the send or the receive"
