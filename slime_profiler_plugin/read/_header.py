"""What a trace says about itself, found without decoding more of it than need be."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from slime_profiler_plugin.clock import ClockPair
from slime_profiler_plugin.schema import WINDOW_IDENTITY_KEY, WINDOW_ROLLOUTS_KEY

from ._chunks import TraceText
from ._damage import Damage, TraceRefusedError
from ._events import TraceEvent
from ._files import read_blocks, read_plain_tail
from ._lookalikes import name_lookalike
from ._members import Members, Stop

BASE_KEY: Final = "baseTimeNanoseconds"
DISTRIBUTED_KEY: Final = "distributedInfo"
#: VizTracer's place for the base.
_VIZTRACER_KEY: Final = "viztracer_metadata"
#: The first events are decoded from so much text.
_HEAD: Final = 1 << 16
#: What stands behind the events is looked for in so much text at the end of the file.
_TAIL: Final = 1 << 20
_LIST_END: Final = re.compile(r"\}[ \t\r\n]*(?:,[ \t\r\n]*)?\](?=[ \t\r\n]*[,}])")
#: Ends of lists in the tail that are tried.
_TRIES: Final = 64
#: A base beyond what 64 bits hold is none.
_LATEST: Final = 2**63
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


class Head(NamedTuple):
    """The header of a trace and its first events; `layout` is ``object`` or ``array``."""

    header: TraceHeader
    layout: str
    events: list[TraceEvent]


def read_head(path: Path) -> Head:
    """The header and the first events of the trace at `path`.

    The events are not decoded for it; a compressed file is decompressed to its end where base or ranks do not
    stand before the events. Raises `TraceRefusedError` for what is no trace, `ReadError` where nothing can be
    read.
    """
    damage: list[Damage] = []
    text = TraceText(read_blocks(path, damage, size=_HEAD), _HEAD)
    pieces = text.pieces()
    events = next(pieces, [])
    if not text.found or (text.layout == "array" and not any(event.ph for event in events)):
        is_lost = bool(damage) and not text.first_bytes
        reason = damage[0].reason if is_lost else name_lookalike(text, events)
        raise TraceRefusedError(f"{path}: no trace: {reason}")
    behind: dict[str, Any] | None = {}
    if text.layout == "object" and (text.walk.closed or not _says_all(text.metadata)):
        behind = None if text.walk.closed else _read_behind(path, text)
        if behind is None:
            if not text.walk.closed:
                text = TraceText(read_blocks(path, []))
                pieces = text.pieces()
            for _ in pieces:
                pass
    return Head(parse_header({**text.metadata, **(behind or {})}), text.layout, events)


def _says_all(metadata: dict[str, Any]) -> bool:
    return BASE_KEY in metadata and (DISTRIBUTED_KEY in metadata or WINDOW_IDENTITY_KEY in metadata)


def _read_behind(path: Path, text: TraceText) -> dict[str, Any] | None:
    """The keys behind the list of events; ``None`` where its end cannot be told from the tail alone."""
    content = read_plain_tail(path, _TAIL)
    tail = (_keep_tail(text.rest()) if content is None else content).decode("latin-1")
    for _, match in zip(range(_TRIES), _LIST_END.finditer(tail), strict=False):
        # Of two lists that end so, the first one is that of the events: what is inside them leaves a bracket.
        members = Members()
        stop, at = members.read(tail, match.end(), last=True)
        if stop is Stop.END and not members.lost and not tail[at:].strip():
            return members.metadata
    return None


def _keep_tail(blocks: Iterator[bytes]) -> bytes:
    kept: deque[bytes] = deque()
    size = 0
    for block in blocks:
        kept.append(block)
        size += len(block)
        while size - len(kept[0]) >= _TAIL:
            size -= len(kept.popleft())
    return b"".join(kept)


def parse_header(metadata: dict[str, Any]) -> TraceHeader:
    """The header that these top-level keys make."""
    rest = dict(metadata)
    told, covers = rest.pop(WINDOW_IDENTITY_KEY, None), rest.pop(WINDOW_ROLLOUTS_KEY, None)
    told = told if isinstance(told, dict) else {}
    pairs = told.get("clock_pairs")
    return TraceHeader(
        {key: value for key, value in told.items() if isinstance(value, _IDENTITY.get(key, ()))},
        [r for r in covers if isinstance(r, (int, str))] if isinstance(covers, list) else [],
        _find_base(rest),
        [ClockPair(*pair) for pair in pairs if _is_pair(pair)] if isinstance(pairs, list) else [],
        rest,
    )


def _find_base(metadata: dict[str, Any]) -> int | None:
    inner = metadata.get(_VIZTRACER_KEY)
    places = (metadata, inner if isinstance(inner, dict) else {})
    found = (_as_base(place.get(BASE_KEY)) for place in places)
    return next((base for base in found if base is not None), None)


def _as_base(value: object) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) <= len(str(_LATEST)):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_base = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LATEST
    return value if is_base else None  # type: ignore[return-value]


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(isinstance(part, int) for part in value)
