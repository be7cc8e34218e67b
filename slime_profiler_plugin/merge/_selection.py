"""Which records and events belong to a file: rule 0."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Final

from slime_profiler_plugin.clock import Alignment
from slime_profiler_plugin.read import Block, ProcessRecords, RolloutKey, Run, TraceWindow
from slime_profiler_plugin.schema import INITIAL, Rollout

from ._endings import ENDED, ENDED_WITH_JOB
from ._times import RunClocks

#: Two processes disagree: then it says nothing.
_AMBIGUOUS: Final = object()


class SyncIndex:
    """The rollout of every weight sync, as its sender recorded it."""

    def __init__(self, run: Run) -> None:
        self._syncs: dict[tuple[int, str, int], object] = {}
        self._versions: dict[tuple[int, str], object] = {}
        self._senders: dict[tuple[int, str, str | None, int | None], str] = {}
        self._reused: set[tuple[int, str]] = set()
        for records in run.processes:
            attempt = records.process.attempt
            for (source, sync), rollout in records.syncs.items():
                _note(self._syncs, (attempt, source, sync), rollout)
            for version, rollout in records.weight_versions.items():
                _note(self._versions, (attempt, version), rollout)
            self._reused.update((attempt, version) for version in records.reused_versions)
            self._note_sender(records)

    def _note_sender(self, records: ProcessRecords) -> None:
        process = records.process
        sent_in = {rollout for (source, _), rollout in records.syncs.items() if source == records.source}
        for version, rollout in records.weight_versions.items():
            if rollout in sent_in:
                key = (process.attempt, version, process.role, process.rank)
                if self._senders.setdefault(key, process.incarnation) != process.incarnation:
                    self._reused.add((process.attempt, version))

    def is_reused(self, attempt: int, weight_version: str) -> bool:
        """Whether syncs of several rollouts, of several incarnations of a rank, or several of one have it."""
        key = (attempt, weight_version)
        return self._versions.get(key) is _AMBIGUOUS or key in self._reused

    def rollout_of(self, attempt: int, key: RolloutKey) -> Rollout:
        """A line's own rollout, else that of the sync it belongs to, else ``None``."""
        if key.rollout is not None:
            return key.rollout
        found: object = None
        if key.source is not None and key.sync is not None:
            found = self._syncs.get((attempt, key.source, key.sync))
        if (
            found is None
            and key.weight_version is not None
            and not self.is_reused(attempt, key.weight_version)
        ):
            found = self._versions.get((attempt, key.weight_version))
        return None if found is _AMBIGUOUS else found  # type: ignore[return-value]


class Selection:
    """The rollouts of one output and, for sources that know no rollout, their span.

    It reaches from the first start to the last end of the records of the attempt that name one of them; what
    lies between two rollouts of a range belongs to the range. `spans` are (start, end) in reference ns by
    attempt, `extents` the same by attempt and rollout, for every rollout of the run.
    """

    def __init__(self, run: Run, clocks: RunClocks, rollouts: Collection[int | str]) -> None:
        self.rollouts = frozenset(rollouts)
        self.extents: dict[tuple[int, int | str], tuple[int, int]] = {}
        for records in run.processes:
            align = clocks.of_process(records)
            for rollout, extent in records.extents.items():
                if rollout is None:
                    continue
                key = (records.process.attempt, rollout)
                start, end = (align.to_reference(t) for t in extent)
                known = self.extents.get(key, (start, end))
                self.extents[key] = (min(known[0], start), max(known[1], end))
        self.spans: dict[int, tuple[int, int]] = {}
        for (attempt, named), (start, end) in self.extents.items():
            if named not in self.rollouts:
                continue
            known = self.spans.get(attempt, (start, end))
            self.spans[attempt] = (min(known[0], start), max(known[1], end))
        self._busy = _busy_times(self.extents)

    def touches(self, attempt: int, start_ns: int, end_ns: int) -> bool:
        """Whether something from `start_ns` to `end_ns` (reference) touches a span, ends included."""
        span = self.spans.get(attempt)
        return span is not None and start_ns <= span[1] and end_ns >= span[0]

    def is_outside(self, attempt: int, start_ns: int, end_ns: int) -> bool:
        """Whether something from `start_ns` to `end_ns` (reference) touches no rollout of the run at all."""
        busy = self._busy.get(attempt, [])
        return not any(start_ns <= end and end_ns >= start for start, end in busy)

    def is_inside(self, attempt: int, start_ns: int, end_ns: int) -> bool:
        """Whether everything between the two touches a rollout of the run, this one or another."""
        busy = self._busy.get(attempt, [])
        return any(start <= start_ns and end_ns <= end for start, end in busy)

    def has(self, window: TraceWindow) -> bool:
        """Whether a window covers one of the rollouts."""
        return not self.rollouts.isdisjoint(window.covers)

    def stretches(self, attempt: int, covers: Sequence[int | str]) -> list[tuple[float, float]]:
        """When the events of a source that covers those rollouts, in that order, belong to the output.

        Each rollout reaches to the start of the next, the first has everything before it and the last
        everything after: between the rollouts of a source there is nothing that belongs to neither.
        Without records to tell them apart, it is all or nothing.
        """
        extents = [self.extents.get((attempt, rollout)) for rollout in covers]
        known = [extent for extent in extents if extent is not None]
        if len(known) < len(covers):
            return [] if self.rollouts.isdisjoint(covers) else [(-math.inf, math.inf)]
        starts = [-math.inf, *(start for start, _ in known[1:])]
        ends = [max(end, after) for (_, end), (after, _) in pairwise(known)]
        stretches = zip(covers, starts, [*ends, math.inf], strict=True)
        return [(start, end) for rollout, start, end in stretches if rollout in self.rollouts]


def choose_blocks(
    records: ProcessRecords, alignment: Alignment, selection: Selection, syncs: SyncIndex
) -> list[Block]:
    """The blocks of a process's files that may hold something of the output, or of no output at all."""
    attempt = records.process.attempt
    chosen: list[Block] = []
    ids: list[tuple[int, int]] = []
    for block in records.blocks:
        rollouts = {syncs.rollout_of(attempt, key) for key in block.keys}
        by_time = block.placed_by_time or None in rollouts
        if not rollouts.isdisjoint(selection.rollouts) or (
            by_time and _may_matter(block, attempt, alignment, selection)
        ):
            chosen.append(block)
            if block.phase_ids is not None:
                ids.append(block.phase_ids)
    # A bracket is written when it is resolved, which may be blocks after its phase.
    seen = {id(block) for block in chosen}
    late = [b for b in records.blocks if id(b) not in seen and _overlaps(b.device_ids, ids)]
    return [*chosen, *late]


def _may_matter(block: Block, attempt: int, alignment: Alignment, selection: Selection) -> bool:
    """Whether it may hold what only its time can place, here or outside every rollout."""
    if block.first_ns is None:
        return False
    first, last = alignment.span_to_reference(block.first_ns, block.last_ns)
    return selection.touches(attempt, first, last) or not selection.is_inside(attempt, first, last)


def _busy_times(
    extents: Mapping[tuple[int, int | str], tuple[int, int]],
) -> dict[int, list[tuple[int, int]]]:
    """By attempt, the times when any rollout was under way: joined where they touch, in order."""
    busy: dict[int, list[tuple[int, int]]] = {}
    for (attempt, _), (start, end) in sorted(extents.items(), key=lambda item: item[1]):
        times = busy.setdefault(attempt, [])
        if times and start <= times[-1][1]:
            times[-1] = (times[-1][0], max(times[-1][1], end))
        else:
            times.append((start, end))
    return busy


def _overlaps(span: tuple[int, int] | None, others: list[tuple[int, int]]) -> bool:
    return span is not None and any(span[0] <= last and span[1] >= first for first, last in others)


def rollout_order(rollout: int | str) -> tuple[int, int, str]:
    """Sort key: ``initial`` first, then by number, then what users named themselves."""
    if rollout == INITIAL:
        return (0, 0, "")
    return (1, rollout, "") if isinstance(rollout, int) else (2, 0, rollout)


def find_complete(run: Run, endings: Mapping[tuple[str, str], str]) -> int | str | None:
    """The latest rollout of the last attempt that every process is done with, or ``None``.

    A process is done with a rollout when it has gone on to a later one, or ended as it should (`endings`, by
    the key of the process). A trainer rank that never came to it means that it is not complete.
    """
    if not run.processes:
        return None
    attempt = max(records.process.attempt for records in run.processes)
    members = [r for r in run.processes if r.process.attempt == attempt and set(r.extents) - {None}]
    named = sorted({x for r in members for x in r.extents if x is not None}, key=rollout_order)
    for rollout in reversed(named):
        if all(_is_done(records, rollout, members, endings[records.key]) for records in members):
            return rollout
    return None


def _is_done(records: ProcessRecords, rollout: int | str, members: list[ProcessRecords], ending: str) -> bool:
    order = rollout_order(rollout)
    own = [rollout_order(r) for r in records.extents if r is not None]
    if max(own) > order or _was_replaced(records, members):
        return True
    if ending not in (ENDED, ENDED_WITH_JOB):
        return False
    return order in own or not _trains(records)


def _trains(records: ProcessRecords) -> bool:
    """Whether the process does a part of every rollout: one of the numbered trainer ranks."""
    return records.process.role in ("actor", "critic") and records.process.rank is not None


def _was_replaced(records: ProcessRecords, members: list[ProcessRecords]) -> bool:
    """Whether a later incarnation of the same rank took over."""
    who = records.process
    return who.rank is not None and any(
        (other.process.role, other.process.rank) == (who.role, who.rank)
        and other.process.start_unix_ns > who.start_unix_ns
        for other in members
    )


def _note(
    table: dict[tuple[int, str, int], object] | dict[tuple[int, str], object],
    key: tuple[object, ...],
    rollout: Rollout,
) -> None:
    known = table.setdefault(key, rollout)  # type: ignore[arg-type]
    if known != rollout:
        table[key] = _AMBIGUOUS  # type: ignore[index]
