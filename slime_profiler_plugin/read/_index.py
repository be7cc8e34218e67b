"""What the blocks of a process's files hold, so that most need not be decoded again."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

import msgspec

from slime_profiler_plugin import schema
from slime_profiler_plugin.schema import Rollout

from .records import RecordLine

#: Lines that describe the process and are no events.
DESCRIPTIONS: Final = (
    schema.Process,
    schema.PhaseDef,
    schema.Identity,
    schema.Thread,
    schema.Clock,
    schema.End,
)
_SPANS: Final = (schema.Phase, schema.Open, schema.Mark)


#: Half the range of 64-bit nanoseconds: sums of two times still fit.
_LATEST_NS: Final = 2**62


def impossible_time(start_ns: int, end_ns: int) -> str | None:
    """Why something cannot have been from `start_ns` to `end_ns`; ``None`` when it can."""
    if end_ns < start_ns:
        return "slice of negative length"
    if start_ns <= 0:
        return "event at time 0 or before"
    return "event at a time beyond the clock" if end_ns >= _LATEST_NS else None


class RolloutKey(NamedTuple):
    """What a line says about the rollout it belongs to: the rollout itself, or a sync."""

    rollout: Rollout
    source: str | None = None
    sync: int | None = None
    weight_version: str | None = None


class Block(msgspec.Struct):
    """One block of one segment.

    `lines`, `described` and `unknown` (by kind) count its lines. `keys` are those of its phases, open
    phases and marks; `placed_by_time` says whether it holds something that only its time can
    place; `first_ns` to `last_ns` is when any of it was. `phase_ids` and `device_ids` are the least and
    the largest id of its phases and of the phases that its brackets belong to.
    """

    segment: int
    number: int
    lines: int = 0
    described: int = 0
    unknown: Counter[str] = msgspec.field(default_factory=Counter)
    keys: set[RolloutKey] = msgspec.field(default_factory=set)
    placed_by_time: bool = False
    first_ns: int | None = None
    last_ns: int = 0
    phase_ids: tuple[int, int] | None = None
    device_ids: tuple[int, int] | None = None

    def note(self, item: RecordLine) -> None:
        """Take in a line."""
        line = item.line
        self.lines += 1
        if isinstance(line, _SPANS):
            self.keys.add(rollout_key(line))
            end = line.start_ns
            if isinstance(line, schema.Phase):
                end += line.dur_ns
            elif isinstance(line, schema.Open):
                end = line.seen_ns
            self._note_time(line.start_ns, end)
            if not isinstance(line, schema.Mark):
                self.phase_ids = _widen(self.phase_ids, line.id)
        elif isinstance(line, schema.Device):
            self.device_ids = _widen(self.device_ids, line.id)
            self._note_time(line.start_ns, line.start_ns + line.dur_ns)
        elif isinstance(line, schema.Drop):
            self.placed_by_time = True
            self._note_time(line.at_ns, line.at_ns)
        elif isinstance(line, DESCRIPTIONS):
            self.described += 1
        else:
            self.unknown[item.kind] += 1

    def _note_time(self, start: int, end: int) -> None:
        if impossible_time(start, end) is not None:
            return
        self.first_ns = start if self.first_ns is None else min(self.first_ns, start)
        self.last_ns = max(self.last_ns, end)


class KnownPhases:
    """Which phases were seen, for brackets that come later; bounded.

    A bracket follows its phase soon, so of many phases only the newest are remembered.
    """

    _LIMIT: Final = 1_000_000

    def __init__(self) -> None:
        self._ids: dict[int, None] = {}
        self._forgotten = -1

    def add(self, phase_id: int) -> None:
        """A phase was seen."""
        self._ids[phase_id] = None
        if len(self._ids) > self._LIMIT:
            oldest = next(iter(self._ids))
            del self._ids[oldest]
            self._forgotten = max(self._forgotten, oldest)

    def take(self, phase_id: int) -> bool:
        """Whether the phase of a bracket was seen."""
        return self._ids.pop(phase_id, phase_id) is None or phase_id <= self._forgotten


def rollout_key(line: schema.Phase | schema.Open | schema.Mark) -> RolloutKey:
    """What `line` says about its rollout."""
    if line.rollout is not None:
        return RolloutKey(line.rollout)  # type: ignore[arg-type]
    return RolloutKey(None, line.source, line.sync, line.weight_version)


def _widen(known: tuple[int, int] | None, value: int) -> tuple[int, int]:
    return (value, value) if known is None else (min(known[0], value), max(known[1], value))
