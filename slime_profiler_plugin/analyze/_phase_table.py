"""How often each phase ran in one rollout and how long it took, by role and rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from slime_profiler_plugin.phases import BUILT_IN
from slime_profiler_plugin.read import ProcessRecords, Run
from slime_profiler_plugin.schema import PhaseDef, Rollout

_BUILT_IN_ORDER: Final = {name: place for place, name in enumerate(BUILT_IN)}


class Column(NamedTuple):
    """A role's rank; ``None`` where the process did not say."""

    role: str | None
    rank: int | None


class Cell(msgspec.Struct, frozen=True):
    """One phase on one rank: how often it ended, and the sum of its durations."""

    count: int
    total_ns: int


class Row(NamedTuple):
    """One phase; `depth` phases of the vocabulary stand around it. A cell is ``None`` where it never ran.

    A parent's time includes its children's.
    """

    phase: str
    depth: int
    cells: tuple[Cell | None, ...]


class PhaseTable(NamedTuple):
    """Phases by role and rank, in one rollout of one attempt."""

    attempt: int
    rollout: int | str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def phase_table(run: Run, rollout: int | str, attempt: int | None = None) -> PhaseTable:
    """Sum up the phases of `rollout` in `attempt` (the last one by default).

    An engine's phase that names no rollout counts to that of its sync. Processes of one role
    and rank share a column. Raises `ValueError` when no record names the rollout.
    """
    if attempt is None:
        attempt = max((p.process.attempt for p in run.processes), default=0)
    processes = [p for p in run.processes if p.process.attempt == attempt]
    if not any(rollout in p.extents for p in processes):
        raise ValueError(f"attempt {attempt} of run {run.run_id} has no record of rollout {rollout}")
    syncs = {sync: owner for p in processes for sync, owner in p.syncs.items()}
    totals: dict[str, dict[Column, Cell]] = defaultdict(dict)
    definitions: dict[str, PhaseDef] = {}
    for records in processes:
        definitions |= records.phase_defs
        column = Column(records.process.role, records.process.rank)
        for name, cell in _sum_phases(records, rollout, syncs).items():
            known = totals[name].get(column, Cell(0, 0))
            totals[name][column] = Cell(known.count + cell.count, known.total_ns + cell.total_ns)
    columns = tuple(sorted({c for cells in totals.values() for c in cells}, key=_column_order))
    found = {name: definitions.get(name) or BUILT_IN.get(name) for name in totals}
    parents = {name: definition.parents for name, definition in found.items() if definition}
    rows = tuple(
        Row(name, depth, tuple(totals[name].get(column) for column in columns))
        for name, depth in _outline(totals, parents)
    )
    return PhaseTable(attempt, rollout, columns, rows)


def _sum_phases(
    records: ProcessRecords, rollout: int | str, syncs: Mapping[tuple[str, int], Rollout]
) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for phase in records.phases():
        owner = phase.rollout
        if owner is None and phase.source is not None and phase.sync is not None:
            owner = syncs.get((phase.source, phase.sync))
        if owner == rollout:
            known = cells.get(phase.name, Cell(0, 0))
            cells[phase.name] = Cell(known.count + 1, known.total_ns + phase.dur_ns)
    return cells


def _column_order(column: Column) -> tuple[str, int]:
    return column.role or "", -1 if column.rank is None else column.rank


def _outline(names: Iterable[str], parents: dict[str, tuple[str, ...]]) -> list[tuple[str, int]]:
    """Names with their depth, each parent before its children, otherwise as in the vocabulary."""
    present = sorted(names, key=lambda name: (_BUILT_IN_ORDER.get(name, len(_BUILT_IN_ORDER)), name))
    # Of several parents that ran, the one that is named first: of the others, most have it now and then.
    above = {name: next((p for p in parents.get(name, ()) if p in present), None) for name in present}
    outline: list[tuple[str, int]] = []
    placed: set[str] = set()

    def place(name: str, depth: int) -> None:
        if name in placed:
            return
        placed.add(name)
        outline.append((name, depth))
        for child in present:
            if above[child] == name:
                place(child, depth + 1)

    for name in present:
        if above[name] is None:
            place(name, 0)
    for name in present:  # parents that are each other's children
        place(name, 0)
    return outline
