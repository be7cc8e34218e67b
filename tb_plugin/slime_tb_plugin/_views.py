"""The views: tables of `slime_profiler_plugin.analyze`, cut to what is shown. Nothing is computed here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from slime_profiler_plugin.analyze import RunTables
from slime_profiler_plugin.phases import BUILT_IN
from slime_profiler_plugin.schema import INITIAL

from ._answers import AttemptEntry, Column, PhaseEntry, SyncPhase, Table

#: Rollouts of any other name have no timeline, and no record has one.
_ROLLOUT: Final = re.compile(rf"0|[1-9][0-9]{{0,17}}|{INITIAL}")
_ORDER: Final = {name: place for place, name in enumerate(BUILT_IN)}
_ATTEMPTS: Final = """
SELECT p.attempt, r.rollout_name, p.process FROM processes p LEFT JOIN rank_phases r USING (process)
GROUP BY ALL
"""
# What is joined to a sync by its weight version, as a check afterwards, is no part of it unless its activity
# says so. A phase of the sending rank that names no sync, as Megatron's gathers, is of the one it lies in.
_SYNC: Final = """
WITH own AS (
  SELECT p.source, x.process, x.start_ns, x.end_ns FROM phases x JOIN processes p USING (process)
  WHERE x.attempt = {attempt} AND x.sync = {sync} AND x.name = 'weight_sync'
    AND coalesce(x.source, p.source) = p.source
)
SELECT x.source, p.source, p.role, coalesce(p.rank, p.engine), x.name, x.bucket, x.start_ns, x.dur_ns, x.bytes
FROM phases x JOIN processes p USING (process) WHERE x.attempt = {attempt} AND x.sync = {sync}
  AND coalesce(x.activity, 'sync') = 'sync'
UNION ALL
SELECT o.source, o.source, p.role, p.rank, x.name, x.bucket, x.start_ns, x.dur_ns, x.bytes
FROM own o JOIN phases x USING (process) JOIN processes p USING (process)
WHERE x.sync IS NULL AND x.activity = 'sync' AND x.start_ns >= o.start_ns AND x.end_ns <= o.end_ns
"""


class SyncName(NamedTuple):
    """What tells a sync from others of its attempt: its number and who sent it."""

    number: int
    source: str


def attempts(tables: RunTables, numbers: Iterable[int]) -> list[AttemptEntry]:
    """Every attempt: those of `numbers`, and those that left records."""
    rollouts: dict[int, set[str]] = {number: set() for number in numbers}
    processes: dict[int, set[int]] = {}
    for attempt, rollout, process in tables.sql(_ATTEMPTS).rows:
        processes.setdefault(attempt, set()).add(process)
        named = rollouts.setdefault(attempt, set())
        if rollout is not None and _ROLLOUT.fullmatch(rollout):
            named.add(rollout)
    return [
        AttemptEntry(
            attempt=attempt,
            rollouts=sorted(named, key=lambda r: -1 if r == INITIAL else int(r)),
            processes=len(processes.get(attempt, ())),
        )
        for attempt, named in sorted(rollouts.items())
    ]


def view(tables: RunTables, name: str, rollouts: list[str] | None, **only: Any) -> Table:
    """One of `analyze.VIEWS` over `rollouts` (``None``: all); of its rows those with the values of `only`."""
    found = tables.view(name, rollouts)
    at = {column.name: place for place, column in enumerate(found.columns)}
    rows = [list(row) for row in found.rows if all(row[at[word]] == value for word, value in only.items())]
    return Table(columns=[Column(**column._asdict()) for column in found.columns], rows=rows)


def order_phases(names: Iterable[str]) -> list[PhaseEntry]:
    """Phases with their depth, each behind the one it stands in, otherwise as in the vocabulary.

    >>> [(phase.name, phase.depth) for phase in order_phases({"mine", "backward", "train_step"})]
    [('train_step', 0), ('backward', 1), ('mine', 0)]
    """
    ordered = sorted(set(names), key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
    above = {name: _around(name, set(ordered)) for name in ordered}
    found: list[PhaseEntry] = []

    def place(name: str, depth: int) -> None:
        found.append(PhaseEntry(name=name, depth=depth))
        for child in ordered:
            if above[child] == name:
                place(child, depth + 1)

    for name in ordered:
        if above[name] is None:
            place(name, 0)
    return found


def _around(name: str, names: set[str]) -> str | None:
    """The nearest phase of the vocabulary around it that ran."""
    around = _parents(name)
    while around:
        found = next((word for word in around if word in names), None)
        if found is not None:
            return found
        around = tuple(outer for word in around for outer in _parents(word))
    return None


def _parents(name: str) -> tuple[str, ...]:
    return BUILT_IN[name].parents if name in BUILT_IN else ()


def sync_phases(tables: RunTables, attempt: int, sync: SyncName) -> list[SyncPhase]:
    """Every phase of one sync, the source's first."""
    told = []
    begin = None
    for named, own, role, rank, phase, bucket, start, length, size in tables.sql(
        _SYNC.format(attempt=attempt, sync=sync.number)
    ).rows:
        if (named or own) != sync.source:
            continue
        is_own = own == sync.source
        if phase == "weight_sync":
            begin = start if begin is None or (is_own and start < begin) else begin
            continue
        row = (role or "unknown") if rank is None else f"{role or 'unknown'} {rank}"
        entry = SyncPhase(row=row, phase=phase, bucket=bucket, start_ns=start, dur_ns=length, bytes=size)
        told.append(((not is_own, row, start), entry))
    told.sort(key=lambda item: item[0])
    phases = [phase for _, phase in told]
    origin = begin if begin is not None else min((phase.start_ns for phase in phases), default=0)
    for phase in phases:
        phase.start_ns -= origin
    return phases
