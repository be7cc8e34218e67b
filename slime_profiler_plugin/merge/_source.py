"""Ids in args, and JSON as text: numbers that are exact, members that are added."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from slime_profiler_plugin.clock import ns_to_decimal_us


class Context(NamedTuple):
    """Ids that stand in the args of events."""

    run_id: str
    attempt: int


#: Writes any value that stands in args as strict JSON.
ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])


def format_us(ns: int) -> bytes:
    """Microseconds with three decimals, exact.

    >>> format_us(1_234_567), format_us(-5)
    (b'1234.567', b'-0.005')
    """
    return ns_to_decimal_us(ns).encode()


def raw_us(ns: int) -> Raw:
    """`format_us` as a JSON number."""
    return Raw(format_us(ns))


def members(values: dict[str, Any]) -> bytes:
    """The members of a JSON object, without its braces."""
    return encode_value(values)[1:-1]


def encode_value(value: dict[str, Any]) -> bytes:
    """As strict JSON; what is no text, such as bytes of a file's name that are not UTF-8, is replaced."""
    try:
        return ENCODER.encode(value)
    except UnicodeEncodeError:
        return ENCODER.encode(_as_text(value))


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_as_text(key): _as_text(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(_as_text, value))
    if isinstance(value, msgspec.Struct):
        return _as_text(msgspec.structs.asdict(value))
    return value


def decode_members(text: bytes | Raw) -> dict[str, Raw] | None:
    """The members of a JSON object, each as its text; ``None`` for what is none.

    >>> decode_members(b'{"a": 1e999}') == {"a": Raw(b"1e999")}, decode_members(b"[]")
    (True, None)
    """
    try:
        return _MEMBERS.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def add_members(text: bytes, more: bytes) -> bytes:
    """A JSON object's text with `more` members at its end.

    >>> add_members(b'{"a": 1 }', b'"b":2'), add_members(b"{}", b'"b":2')
    (b'{"a": 1,"b":2}', b'{"b":2}')
    """
    head = text.rstrip()[:-1].rstrip()
    return head + (b"" if head.endswith(b"{") else b",") + more + b"}"
