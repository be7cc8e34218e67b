"""Decoding of events: many at once where they are as they should be, else one by one."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from slime_profiler_plugin.clock import decimal_us_to_ns


class TraceEvent(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One event as it stands in the file; `more` holds fields that are rarely met.

    Raw fields are JSON text: ``ts`` and ``dur`` may be numbers in quotes. A pid, tid or id of another JSON
    type stands as its text.
    """

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


_RAW_FIELDS: Final = frozenset({"cat", "name", "ts", "dur", "bp", "s", "args"})
_IDS: Final = frozenset({"pid", "tid", "id"})
_MANY: Final = msgspec.json.Decoder(list[TraceEvent])
_RAWS: Final = msgspec.json.Decoder(list[Raw])
_ONE: Final = msgspec.json.Decoder(TraceEvent)
_FIELDS: Final = msgspec.json.Decoder(dict[str, Raw])


def decode_many(text: bytes) -> list[TraceEvent] | None:
    """The events of a JSON array; ``None`` where it is none, or holds something else than objects.

    `text` is UTF-8.
    """
    try:
        return _MANY.decode(text)
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, RecursionError):
        return None
    try:
        raws = _RAWS.decode(text)
        return [decode_one(bytes(raw)) for raw in raws]
    except (msgspec.DecodeError, RecursionError):
        return None


def decode_one(text: bytes) -> TraceEvent:
    """The event that a JSON object is, whatever the types of its fields.

    Raises `msgspec.DecodeError` for what is no JSON object, `RecursionError` where it is nested too deeply.
    """
    try:
        return _ONE.decode(text)
    except msgspec.ValidationError:
        pass
    event = TraceEvent()
    more: dict[str, Any] = {}
    for key, raw in _FIELDS.decode(text).items():
        if key in _RAW_FIELDS:
            setattr(event, key, raw)
        elif key in _IDS:
            _set_id(event, key, raw)
        else:
            value = _decode_any(raw)
            if key == "ph" and isinstance(value, str):
                event.ph = value
            else:
                more[key] = value
    if more:
        event.more = more
    return event


def time_ns(raw: Raw) -> int:
    """A ``ts`` or ``dur`` in ns; it may be in quotes. Raises `ValueError` for what is no number."""
    return decimal_us_to_ns(bytes(raw).strip(b'"'))


def _set_id(event: TraceEvent, key: str, raw: Raw) -> None:
    value = _decode_any(raw)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None and key == "id":
        return
    is_plain = value is None or (isinstance(value, (int, str)) and not isinstance(value, bool))
    setattr(event, key, value if is_plain else msgspec.json.encode(value).decode())


def _decode_any(raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.ValidationError:  # a number that no double holds
        return bytes(raw).decode("utf-8", "replace")
