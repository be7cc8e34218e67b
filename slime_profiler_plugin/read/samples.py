"""Traces of samples that slime dumped (``--save-debug-rollout-data``): a track for each sample.

Times are those of ``time.time()`` where the rollout manager ran.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ._damage import Damage
from ._load_dump import load_samples, require_torch
from ._nsys_times import MOST_NS, microseconds
from ._owner import Owner, stem_of
from ._plain_values import plain_value
from ._torch_file import is_torch_file, read_dump_head
from .kineto import TraceEvent, TraceHeader

__all__ = ["is_torch_file", "read_samples_header", "sample_pieces"]

#: Events in one piece: about a megabyte of text.
_PIECE: Final = 4096
#: What slime puts in the place of ``{rollout_id}`` for an evaluation.
_EVAL: Final = re.compile(r"(?<![A-Za-z])eval_\d+(?!\d)")
_CAT: Final = Raw(b'"sample"')
_ON_THREAD: Final = Raw(b'"t"')
_NO_NAME: Final = "(no name)"
_START, _END, _EVENT = "span_start", "span_end", "event"
_IDS: Final = ("span_id", "parent_span_id")
#: What an event says of its sample, and the word for it in args.
_OWN: Final = {"sample_id": "sample", "group_id": "group", "trace_id": "trace_id", "attempt": "attempt"}
_KNOWN: Final = frozenset({"type", "name", "ts", "attrs", *_IDS, *_OWN})
_ERROR: Final = ("error_type", "error_message")


def read_samples_header(path: Path) -> tuple[TraceHeader, Owner]:
    """What the dump at `path` says of itself, and what its samples are called; none of them is loaded.

    Raises `TraceRefusedError` for any other file of ``torch.save``, or where torch is not installed, and
    `ReadError`.
    """
    rollout = read_dump_head(path).rollout
    require_torch(path)
    stem = stem_of(path.name)
    kind = "eval samples" if _EVAL.search(stem) else "samples"
    name = f"{kind} of {stem}" if rollout is None else f"{kind} of rollout {rollout}"
    return TraceHeader({}, [], None, [], {}), Owner(detail=name)


def sample_pieces(path: Path, process: str, damage: list[Damage]) -> Iterator[list[TraceEvent]]:
    """The events of the dump at `path`, of a process called `process`; the same each time.

    What cannot be read of it is added to `damage`. Raises what `read_samples_header` raises.
    """
    samples = load_samples(path)
    reading = _Reading(process)
    piece: list[TraceEvent] = []
    for number, sample in enumerate(samples):
        piece += reading.read(number, sample)
        if len(piece) >= _PIECE:
            yield piece
            piece = []
    if piece:
        yield piece
    damage.extend(reading.tell(path, len(samples)))


class _Sample(NamedTuple):
    """Where the events of a sample stand, and what stands in the args of each."""

    tid: int
    ids: dict[str, Any]


class _Reading:
    """Makes events of samples, and counts what it cannot make any of."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._bad_samples = self._bad_events = self._without = 0
        self._unread: Counter[str] = Counter()

    def read(self, number: int, sample: object) -> Iterator[TraceEvent]:
        """The events of one."""
        trace = sample.get("trace") if isinstance(sample, dict) else ()
        trace = {} if trace is None else trace
        events = trace.get("events", []) if isinstance(trace, dict) else ()
        if not isinstance(sample, dict) or not isinstance(trace, dict) or not isinstance(events, list):
            self._bad_samples += 1
            return
        if not events:
            self._without += 1
            return
        ids = {
            "sample": _first(trace.get("sample_id"), sample.get("index")),
            "group": _first(trace.get("group_id"), sample.get("group_index")),
            "trace_id": trace.get("trace_id"),
            "attempt": trace.get("attempt"),
        }
        owner = _Sample(number, {key: plain_value(each) for key, each in ids.items() if each is not None})
        yield self._name_track(owner)
        yield from self._events(owner, events)

    def _events(self, owner: _Sample, events: list[Any]) -> Iterator[TraceEvent]:
        """Starts and ends are joined by their id wherever they stand: children are noted late."""
        ends: dict[str | int, dict[str, Any]] = {}
        others: list[dict[str, Any]] = []
        for event in events:
            kind = event.get("type") if isinstance(event, dict) else None
            if not isinstance(event, dict):
                self._bad_events += 1
            elif kind == _END:
                key = _span_id(event)
                if key is None or key in ends:
                    yield self._make(owner, "E", event)
                else:
                    ends[key] = event
            elif kind in (_START, _EVENT):
                others.append(event)
            else:
                self._unread[str(plain_value(kind))] += 1
        for event in others:
            if event["type"] == _EVENT:
                yield self._make(owner, "i", event)
                continue
            key = _span_id(event)
            end = None if key is None else ends.get(key)
            if end is None or key is None or _time_ns(end) is None:
                yield self._make(owner, "B", event)
                continue
            del ends[key]
            yield self._make(owner, "X", event, end)
        for end in ends.values():
            yield self._make(owner, "E", end)

    def _make(
        self, owner: _Sample, ph: str, event: dict[str, Any], end: dict[str, Any] | None = None
    ) -> TraceEvent:
        start_ns = _time_ns(event)
        name = event.get("name")
        made = TraceEvent(
            ph=ph,
            cat=_CAT,
            name=Raw(msgspec.json.encode(plain_value(name) if isinstance(name, str) and name else _NO_NAME)),
            pid=self._process,
            # An end that belongs to no start must not be taken for that of another.
            tid=f"{owner.tid} ends" if ph == "E" else owner.tid,
            ts=_ts(start_ns),
            args=_args(owner, event, end),
        )
        if ph == "i":
            made.s = _ON_THREAD
        end_ns = None if end is None else _time_ns(end)
        if end_ns is not None and start_ns is not None:
            made.dur = microseconds(end_ns - start_ns)
        return made

    def _name_track(self, owner: _Sample) -> TraceEvent:
        sample = owner.ids.get("sample", f"at {owner.tid}")
        group = f"group {owner.ids['group']} · " if "group" in owner.ids else ""
        return TraceEvent(
            ph="M",
            name=Raw(b'"thread_name"'),
            pid=self._process,
            tid=owner.tid,
            args=Raw(msgspec.json.encode({"name": f"{group}sample {sample}"})),
        )

    def tell(self, path: Path, samples: int) -> Iterator[Damage]:
        """What was left out."""

        def note(kind: str, reason: str, lost: int = 0) -> Damage:
            return Damage(str(path), kind, reason, None, lost)

        if self._bad_samples:
            yield note("corrupt", f"{self._bad_samples} of {samples} samples are none", self._bad_samples)
        if self._bad_events:
            yield note("corrupt", f"{self._bad_events} events are none", self._bad_events)
        if self._without:
            yield note("unread", f"{self._without} of {samples} samples have no trace")
        for kind, count in sorted(self._unread.items()):
            yield note("unread", f"{count} events of type {kind} are not read")


def _first(*values: object) -> object:
    return next((value for value in values if value is not None), None)


def _span_id(event: dict[str, Any]) -> str | int | None:
    key = event.get("span_id")
    return key if isinstance(key, (str, int)) else None


def _time_ns(event: dict[str, Any]) -> int | None:
    """Unix ns; ``None`` for what is no time: such an event is counted as one that has none."""
    at = plain_value(event.get("ts"))
    if isinstance(at, bool) or not isinstance(at, (int, float)) or not math.isfinite(at):
        return None
    seconds = int(at)
    ns = seconds * 10**9 + round((at - seconds) * 1e9)  # at * 1e9 would lose a quarter of a microsecond
    return ns if -MOST_NS < ns < MOST_NS else None


def _ts(ns: int | None) -> Raw | UnsetType:
    return UNSET if ns is None else microseconds(ns)


def _args(owner: _Sample, event: dict[str, Any], end: dict[str, Any] | None) -> Raw:
    args: dict[str, Any] = dict(owner.ids)
    for key, word in (*_OWN.items(), *((key, key) for key in _IDS)):
        if event.get(key) is not None:
            args[word] = plain_value(event[key])
    attrs, at_end = event.get("attrs"), None if end is None else end.get("attrs")
    joined = _join(attrs, at_end)
    if isinstance(joined, dict) and any(key in joined for key in _ERROR):
        args["error"] = ": ".join(str(joined[key]) for key in _ERROR if key in joined)
    if joined is not None:
        args["attrs"] = joined
    for told, where in ((event, "more"), (end or {}, "more at end")):
        more = {key: value for key, value in told.items() if key not in _KNOWN}
        if more:
            args[where] = plain_value(more)
    return Raw(msgspec.json.encode(args))


def _join(attrs: object, at_end: object) -> Any:
    """Those of a start and of its end; where both say something else of one thing, both are kept."""
    if not at_end:
        return plain_value(attrs) if attrs else None
    if not attrs:
        return plain_value(at_end)
    first, last = plain_value(attrs), plain_value(at_end)
    if not isinstance(first, dict) or not isinstance(last, dict):
        return {"at start": first, "at end": last}
    differ = {key for key in first.keys() & last.keys() if first[key] != last[key]}
    return {**first, **{f"{key} (end)" if key in differ else key: value for key, value in last.items()}}
