"""What the views show of one run. Everything that they know of records, they know from here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Final, TypeVar

from slime_profiler_plugin.analyze import phase_table
from slime_profiler_plugin.clock import Alignment, ClockMapping, ClockPair, align_domains
from slime_profiler_plugin.merge import (
    find_endings,
    find_replacements,
    format_ending,
    format_missing,
    name_processes,
    presentation_order,
    rollout_order,
)
from slime_profiler_plugin.phases import phase_group
from slime_profiler_plugin.read import ProcessRecords, Run, VanishedError, read_run
from slime_profiler_plugin.schema import Phase

from ._answers import (
    AttemptEntry,
    BucketSlice,
    HealthProcess,
    OverviewRollout,
    RankColumn,
    RankRow,
    Rollout,
    SyncEntry,
)
from ._spans import Span, clip, length, partition, union

#: In the order in which they are stacked. Waiting for another process is no part.
PARTS: Final = ("generate", "eval", "train", "sync", "other")
_WAITING: Final = frozenset({"train_wait"})
_OWN_PART: Final = {"generate": "generate", "reward": "generate", "eval": "eval"}
_OTHER: Final = frozenset({"sleep", "wake_up", "save_model", "profiler_export", "offload"})
_GROUPS: Final = {"trainer": "train", "sync": "sync", "engine": "sync"}
_SYNC_GROUPS: Final = frozenset({"sync", "engine"})
#: What brings bytes to an engine, by the process that says how many.
_SENDING: Final = "bucket_send"
_PULLING: Final = "engine_pull"
_RETRIES: Final = 4
_NAMED_MISSING: Final = 20
#: Fewer rollouts have no outlier.
_LEAST_FOR_OUTLIERS: Final = 5
_MAD_SCALE: Final = 1.4826
_OUTLIER: Final = 3.0
_Result = TypeVar("_Result")


class RunReader:
    """One run as it was when it was read; the lines themselves are read again for each question."""

    def __init__(self, folder: Path) -> None:
        self.run: Run = _retry(lambda: read_run([folder]))
        self._alignments = _align(self.run.processes)

    def attempts(self) -> list[AttemptEntry]:
        """Every attempt with its rollouts."""
        entries = []
        for attempt in self.run.attempts:
            members = self._members(attempt)
            named = {rollout for p in members for rollout in p.extents if rollout is not None}
            entries.append(
                AttemptEntry(
                    attempt=attempt, rollouts=sorted(named, key=rollout_order), processes=len(members)
                )
            )
        return entries

    def rollouts(self, attempt: int) -> list[Rollout] | None:
        """Those of one attempt; ``None`` where there is no such attempt."""
        return next((entry.rollouts for entry in self.attempts() if entry.attempt == attempt), None)

    def overview(self, attempt: int) -> list[OverviewRollout]:
        """How long each rollout took, and what ran meanwhile."""
        return _retry(lambda: self._overview(attempt))

    def ranks(self, attempt: int, rollout: Rollout) -> tuple[list[RankColumn], list[RankRow]]:
        """Phases by rank in one rollout that `rollouts` names."""
        return _retry(lambda: self._ranks(attempt, rollout))

    def syncs(self, attempt: int, rollout: Rollout | None) -> list[SyncEntry]:
        """The weight synchronisations of a rollout with their slices, or all of them without."""
        return _retry(lambda: self._syncs(attempt, rollout))

    def health(self) -> tuple[list[HealthProcess], list[str]]:
        """Every process, and in words which ranks are missing."""
        run = self.run
        endings = find_endings(run.processes)
        replaced = find_replacements(run.processes, endings)
        names = name_processes(run.processes, len(run.attempts) > 1)
        processes = []
        for records in sorted(run.processes, key=lambda p: presentation_order(p.process)):
            dropped: dict[str, int] = defaultdict(int)
            for drop in records.drops:
                dropped[f"{drop.what}: {drop.reason}"] += drop.count
            processes.append(
                HealthProcess(
                    name=names[records.key],
                    attempt=records.process.attempt,
                    host=records.process.host,
                    pid=records.process.pid,
                    clock=self._alignments[records.process.clock_domain].basis,
                    clock_error_ns=min(pair.error_ns for pair in records.clock_pairs),
                    ending=format_ending(endings[records.key], replaced.get(records.key)),
                    open_phases=[line.name for line in records.opens],
                    dropped=dict(dropped),
                    versions=records.process.versions,
                    bytes=sum(_size(segment.path) for segment in records.segments),
                )
            )
        missing = [
            format_missing(r.role, len(r.seen), r.world_size, r.missing, _NAMED_MISSING)
            + (f" (attempt {r.attempt})" if len(run.attempts) > 1 else "")
            for r in run.role_ranks()
            if r.missing
        ]
        return processes, missing

    def _members(self, attempt: int) -> list[ProcessRecords]:
        return [p for p in self.run.processes if p.process.attempt == attempt]

    def _place(self, records: ProcessRecords) -> Callable[[int, int], Span]:
        return self._alignments[records.process.clock_domain].span_to_reference

    def _origin(self, attempt: int) -> int:
        return min((self._place(p)(p.first_ns, p.first_ns)[0] for p in self._members(attempt)), default=0)

    def _overview(self, attempt: int) -> list[OverviewRollout]:
        origin = self._origin(attempt)
        extents: dict[Rollout, Span] = {}
        spans: dict[str, list[Span]] = {part: [] for part in PARTS}
        for records in self._members(attempt):
            place = self._place(records)
            for named, (first, last) in records.extents.items():
                rollout: Rollout | None = named
                if rollout is None:
                    continue
                start, end = place(first, last)
                known = extents.get(rollout, (start, end))
                extents[rollout] = (min(known[0], start), max(known[1], end))
            found: dict[str, list[Span]] = defaultdict(list)
            for phase in records.phases():
                part = _part(phase)
                if part is not None:
                    found[part].append(place(phase.start_ns, phase.start_ns + phase.dur_ns))
            for part, own in found.items():
                spans[part].extend(union(own))
        together = {part: union(found) for part, found in spans.items()}
        walls = [end - start for start, end in extents.values()]
        entries = []
        for rollout in sorted(extents, key=rollout_order):
            start, end = extents[rollout]
            entries.append(
                OverviewRollout(
                    rollout=rollout,
                    start_ns=start - origin,
                    wall_ns=end - start,
                    parts_ns=partition(together, start, end),
                    totals_ns={part: length(clip(found, start, end)) for part, found in together.items()},
                    outlier=_is_outlier(end - start, walls),
                )
            )
        return entries

    def _ranks(self, attempt: int, rollout: Rollout) -> tuple[list[RankColumn], list[RankRow]]:
        table = phase_table(self.run, rollout, attempt)
        columns = []
        for column in table.columns:
            members = [
                p.process
                for p in self._members(attempt)
                if (p.process.role, p.process.rank) == (column.role, column.rank)
            ]
            name = column.role or "unknown"
            columns.append(
                RankColumn(
                    name=name if column.rank is None else f"{name} {column.rank}",
                    role=column.role,
                    rank=column.rank,
                    hosts=sorted({process.host for process in members}),
                    ranks=members[-1].ranks if members else {},
                )
            )
        rows = []
        for row in table.rows:
            by_role: dict[str, list[int]] = defaultdict(list)
            for column, cell in zip(table.columns, row.cells, strict=True):
                if cell is not None:
                    by_role[column.role or "unknown"].append(cell.total_ns)
            medians = {role: round(median(totals)) for role, totals in by_role.items()}
            rows.append(
                RankRow(
                    phase=row.phase,
                    depth=row.depth,
                    total_ns=[None if cell is None else cell.total_ns for cell in row.cells],
                    count=[None if cell is None else cell.count for cell in row.cells],
                    ratio=[
                        None
                        if cell is None or not medians[column.role or "unknown"]
                        else round(cell.total_ns / medians[column.role or "unknown"], 4)
                        for column, cell in zip(table.columns, row.cells, strict=True)
                    ],
                    median_ns=medians,
                )
            )
        return columns, rows

    def _syncs(self, attempt: int, rollout: Rollout | None) -> list[SyncEntry]:
        found: dict[tuple[str, int], _Sync] = {}
        generating: list[Span] = []
        for records in self._members(attempt):
            place = self._place(records)
            role, rank = records.process.role, records.process.rank
            row = f"{role or 'unknown'}" if rank is None else f"{role} {rank}"
            for phase in records.phases():
                span = place(phase.start_ns, phase.start_ns + phase.dur_ns)
                if phase.name == "generate":
                    generating.append(span)
                if phase.sync is None or phase_group(phase.name) not in _SYNC_GROUPS:
                    continue
                source = phase.source or records.source
                sync = found.setdefault((source, phase.sync), _Sync(source, phase.sync))
                sync.take(phase, span, row, own=source == records.source)
        origin = self._origin(attempt)
        generated = union(generating)
        chosen = [
            sync for sync in found.values() if sync.sends and (rollout is None or sync.rollout == rollout)
        ]
        entries = [sync.entry(origin, generated, with_slices=rollout is not None) for sync in chosen]
        return sorted(entries, key=lambda e: (e.start_ns or 0, e.source, e.sync))


class _Sync:
    """What belongs to one synchronisation, as it is found."""

    def __init__(self, source: str, number: int) -> None:
        self.source = source
        self.number = number
        self.rollout: Rollout | None = None
        self._whole: Span | None = None
        self._items: list[tuple[str, Phase, Span, bool]] = []

    @property
    def sends(self) -> bool:
        """Whether weights left this source: every rank has a ``weight_sync``, few send."""
        return any(phase.name in (_SENDING, _PULLING, "shard_write") for _, phase, _, _ in self._items)

    def take(self, phase: Phase, span: Span, row: str, *, own: bool) -> None:
        """A phase that names this sync, on the row of its process; `own`: the source's."""
        if self.rollout is None:
            self.rollout = phase.rollout
        if phase.name == "weight_sync" and own:
            known = self._whole or span
            self._whole = (min(known[0], span[0]), max(known[1], span[1]))
        else:
            self._items.append((row, phase, span, own))

    def entry(self, origin: int, generating: list[Span], *, with_slices: bool) -> SyncEntry:
        """The row of the ledger."""
        begin = min(span[0] for _, _, span, _ in self._items)
        finish = max(span[1] for _, _, span, _ in self._items)
        start, end = self._whole or (begin, finish)
        pieces: dict[str, list[Span]] = defaultdict(list)
        for _, phase, span, own in self._items:
            if own:
                pieces[phase.name].extend(clip([span], start, end))
        sent = [(p, span) for _, p, span, _ in self._items if p.name == _SENDING]
        moved = sent or [(p, span) for _, p, span, _ in self._items if p.name == _PULLING]
        told = moved or [(p, span) for _, p, span, _ in self._items if p.bytes is not None]
        send_ns = length(span for _, span in told)
        total = sum(phase.bytes or 0 for phase, _ in told)
        hidden = length(clip(generating, start, end))
        named = [span for spans in pieces.values() for span in spans]
        return SyncEntry(
            sync=self.number,
            source=self.source,
            rollout=self.rollout,
            transport=_first(phase.transport for _, phase, _, _ in self._items),
            weight_version=_first(phase.weight_version for _, phase, _, _ in self._items),
            start_ns=None if self._whole is None else start - origin,
            wall_ns=end - start,
            buckets=len({phase.bucket for phase, _ in told if phase.bucket is not None}),
            bytes=total,
            tensors=sum(phase.tensors or 0 for phase, _ in told),
            send_ns=send_ns,
            gb_per_s=round(total / send_ns, 6) if send_ns and total else None,
            exposed_ns=end - start - hidden,
            hidden_ns=hidden,
            pieces_ns={name: length(spans) for name, spans in pieces.items()},
            remainder_ns=end - start - length(named),
            slices=self._slices(start) if with_slices else [],
        )

    def _slices(self, start: int) -> list[BucketSlice]:
        ordered = sorted(self._items, key=lambda item: (item[3] is False, item[0], item[2]))
        return [
            BucketSlice(
                row=row,
                phase=phase.name,
                bucket=phase.bucket,
                start_ns=span[0] - start,
                dur_ns=span[1] - span[0],
                bytes=phase.bytes,
            )
            for row, phase, span, _ in ordered
        ]


def _part(phase: Phase) -> str | None:
    """The part of the loop that a phase stands for, ``None`` for what lies in another or only waits."""
    if phase.name in _WAITING:
        return None
    if phase.name in _OWN_PART:
        return _OWN_PART[phase.name]
    if phase.name in _OTHER:
        return "other"
    group = _GROUPS.get(phase_group(phase.name))
    return group or ("other" if phase.parent is None else None)


def _is_outlier(wall: int, walls: list[int]) -> bool:
    if len(walls) < _LEAST_FOR_OUTLIERS:
        return False
    middle = median(walls)
    spread = _MAD_SCALE * median(abs(each - middle) for each in walls)
    return bool(spread and abs(wall - middle) > _OUTLIER * spread)


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value is not None), None)


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _align(processes: list[ProcessRecords]) -> dict[str, Alignment]:
    """Every clock domain on that of the driver, else of the process that started first."""
    if not processes:
        return {}
    pairs: dict[str, list[ClockPair]] = defaultdict(list)
    for records in processes:
        pairs[records.process.clock_domain].extend(records.clock_pairs)
    drivers = [p for p in processes if p.process.role == "driver"]
    reference = (drivers or processes)[0].process.clock_domain
    return align_domains({domain: ClockMapping(found) for domain, found in pairs.items()}, reference)


def _retry(read: Callable[[], _Result]) -> _Result:
    """A file of a run that is being recorded may get its final name while it is read."""
    for _ in range(_RETRIES):
        with suppress(VanishedError):
            return read()
    return read()
