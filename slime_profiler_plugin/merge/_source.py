"""What the merge asks of everything it reads from.

Each source is read twice. The survey finds out which events belong to the output, where
they stand and which ids they need; then, when the origin of time is known, the events are
written. A format joins as one more kind of source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import Raw

from ._ledger import Ledger


class Context(NamedTuple):
    """Ids that stand in the args of events."""

    run_id: str
    attempt: int


class Source(Protocol):
    """One input of a merge."""

    ledger: Ledger
    #: Earliest start among the events that belong to the output (reference ns); set by the survey.
    first_ns: int | None

    def survey(self) -> None:
        """First reading. Tracks are claimed here, in order of presentation."""

    def events(self, origin_ns: int) -> Iterator[list[bytes]]:
        """Second reading: encoded events with times relative to `origin_ns`."""


#: Writes any value that stands in args as strict JSON.
ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])


def format_us(ns: int) -> bytes:
    """Microseconds with three decimals, exact.

    >>> format_us(1_234_567), format_us(-5)
    (b'1234.567', b'-0.005')
    """
    if ns < 0:
        return b"-" + format_us(-ns)
    return b"%d.%03d" % divmod(ns, 1000)


def raw_us(ns: int) -> Raw:
    """`format_us` as a JSON number."""
    return Raw(format_us(ns))


def members(values: dict[str, Any]) -> bytes:
    """The members of a JSON object, without its braces."""
    return ENCODER.encode(values)[1:-1]


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
