"""Traces written by torch.profiler in a run: events with exact integer times.

Events keep their raw text wherever nobody has to look inside: ``name``, ``cat`` and
``args`` pass through undecoded.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from slime_profiler_plugin.clock import ClockPair, decimal_us_to_ns
from slime_profiler_plugin.schema import WINDOW_IDENTITY_KEY, WINDOW_ROLLOUTS_KEY

from ._chunks import Codec, TraceText
from ._files import Damage, read_blocks

_BASE_KEY: Final = "baseTimeNanoseconds"


class TraceEvent(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One event as it stands in the file; `more` holds fields that are rarely met."""

    ph: str = ""
    cat: Raw | UnsetType = UNSET
    name: Raw | UnsetType = UNSET
    pid: int | str | UnsetType | None = UNSET
    tid: int | str | UnsetType | None = UNSET
    ts: Raw | UnsetType = UNSET
    dur: Raw | UnsetType = UNSET
    id: int | str | UnsetType = UNSET
    bp: Raw | UnsetType = UNSET
    s: Raw | UnsetType = UNSET
    args: Raw | UnsetType = UNSET
    more: dict[str, Any] | UnsetType = UNSET


class TimedEvent(NamedTuple):
    """An event and when it was, in ns relative to the file's base; `None`: it has no usable time."""

    event: TraceEvent
    start_ns: int | None
    dur_ns: int


class TraceHeader(NamedTuple):
    """What a trace says about itself.

    `identity` is what the recorder put there (run_id, attempt, host, pid, incarnation, role, rank,
    ranks, world_size, clock_domain), `rollouts` the rollouts it covers, `base_ns` the Unix time that
    its times are relative to (``None``: they are absolute), `metadata` every other top-level
    key.
    """

    identity: dict[str, Any]
    rollouts: list[int | str]
    base_ns: int | None
    clock_pairs: list[ClockPair]
    metadata: dict[str, Any]


class TraceRefusedError(ValueError):
    """A file that is no trace, or none whose times can be known; the message says why."""


def read_header(path: Path) -> TraceHeader:
    """The metadata of a trace, wherever in the file it stands.

    Raises `TraceRefusedError` for what is no trace, `ReadError` where nothing can be read.
    """
    text = TraceText(read_blocks(path, []), _CODEC)
    pieces = text.pieces()
    next(pieces, None)
    if not text.found:
        raise TraceRefusedError(f"{path}: no trace: it ends before a traceEvents list begins")
    if _BASE_KEY not in text.metadata:
        for _ in pieces:
            pass
        if _BASE_KEY not in text.metadata and not text.closed:
            raise TraceRefusedError(f"{path}: truncated before its {_BASE_KEY}: its times cannot be known")
    return _parse_header(text.metadata)


def read_events(path: Path, damage: list[Damage]) -> Iterator[list[TimedEvent]]:
    """The events of a trace in file order, in pieces of about a megabyte of text.

    A file that was cut is read to its last whole event. That, and every event that cannot be
    decoded, is added to `damage`. Raises `ReadError` when the file cannot be read.
    """
    text = TraceText(read_blocks(path, damage), _CODEC)
    total = 0
    for events in text.pieces():
        total += len(events)
        yield [_timed(event) for event in events]
    for position, reason in text.bad:
        damage.append(Damage(str(path), "corrupt", f"event at byte {position}: {reason}", None, 1))
    if text.replaced:
        damage.append(
            Damage(str(path), "replaced", f"{text.replaced} bytes that are not UTF-8 were replaced")
        )
    if not text.closed and not any(d.file == str(path) and d.kind == "truncated" for d in damage):
        damage.append(Damage(str(path), "truncated", "the list of events has no end"))
    if not text.closed:
        reason = f"{total} whole events before the end, {text.torn_bytes} bytes of an unfinished one"
        damage.append(Damage(str(path), "truncated", reason, None, 1 if text.torn_bytes else 0))


def _timed(event: TraceEvent) -> TimedEvent:
    ts, dur = event.ts, event.dur
    try:
        start = None if ts is UNSET else decimal_us_to_ns(bytes(ts))
        length = 0 if dur is UNSET else decimal_us_to_ns(bytes(dur))
    except ValueError:
        return TimedEvent(event, None, 0)
    return TimedEvent(event, start, length)


def _parse_header(metadata: dict[str, Any]) -> TraceHeader:
    rest = dict(metadata)
    told, covers = rest.pop(WINDOW_IDENTITY_KEY, None), rest.pop(WINDOW_ROLLOUTS_KEY, None)
    told = told if isinstance(told, dict) else {}
    base = rest.get(_BASE_KEY)
    pairs = told.get("clock_pairs")
    return TraceHeader(
        {key: value for key, value in told.items() if isinstance(value, _IDENTITY.get(key, ()))},
        [r for r in covers if isinstance(r, (int, str))] if isinstance(covers, list) else [],
        base if isinstance(base, int) else None,
        [ClockPair(*pair) for pair in pairs if _is_pair(pair)] if isinstance(pairs, list) else [],
        rest,
    )


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(isinstance(part, int) for part in value)


def _decode_one(text: bytes) -> TraceEvent:
    """An event that only a lenient parser accepts: odd fields, NaN, control characters."""
    try:
        return _ONE.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    fields = json.loads(
        text.decode("utf-8", "replace"),
        strict=False,
        parse_float=decimal.Decimal,
        parse_constant=lambda _: None,
    )
    if not isinstance(fields, dict):
        raise msgspec.DecodeError("an event that is no JSON object")
    event = TraceEvent()
    more: dict[str, Any] = {}
    for key, value in fields.items():
        if key in _RAW_FIELDS:
            setattr(event, key, Raw(_encode_lenient(value)))
        elif key in _PLAIN_FIELDS and isinstance(value, _PLAIN_FIELDS[key]):
            setattr(event, key, value)
        else:
            more[key] = value
    if more:
        event.more = json.loads(_encode_lenient(more))
    if event.ts is not UNSET:
        event.ts = Raw(bytes(event.ts).strip(b'"'))
    if event.dur is not UNSET:
        event.dur = Raw(bytes(event.dur).strip(b'"'))
    return event


def _encode_lenient(value: object) -> bytes:
    return _ENCODER.encode(_clean(value))


def _clean(value: object) -> object:
    """`value` without what strict JSON cannot say: lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_clean(key): _clean(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_clean(inner) for inner in value]
    return value


_RAW_FIELDS: Final = frozenset({"cat", "name", "ts", "dur", "bp", "s", "args"})
#: Fields of the identity and what they must be; anything else in it is damage, and left out.
_IDENTITY: Final[dict[str, type]] = {
    "run_id": str,
    "attempt": int,
    "host": str,
    "pid": int,
    "incarnation": str,
    "role": str,
    "rank": int,
    "ranks": dict,
    "world_size": int,
    "clock_domain": str,
}
_PLAIN_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "ph": (str,),
    "pid": (int, str, type(None)),
    "tid": (int, str, type(None)),
    "id": (int, str),
}
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_ONE: Final = msgspec.json.Decoder(TraceEvent)
_CODEC: Final = Codec(many=msgspec.json.Decoder(list[TraceEvent]).decode, one=_decode_one)
