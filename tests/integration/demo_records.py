"""What the demo's tests ask of a run's records."""

from __future__ import annotations

from collections import defaultdict

from slime_profiler_plugin.read import ProcessRecords, Run
from slime_profiler_plugin.schema import Phase


def of_role(run: Run, role: str) -> list[ProcessRecords]:
    """The role's processes, by rank."""
    found = [p for p in run.processes if p.process.role == role]
    return sorted(found, key=lambda p: (p.process.rank is None, p.process.rank))


def by_name(records: ProcessRecords) -> dict[str, list[Phase]]:
    """A process's phases by name, by their start."""
    phases = defaultdict(list)
    for phase in sorted(records.phases(), key=lambda p: p.start_ns):
        phases[phase.name].append(phase)
    return phases


def parent_names(records: ProcessRecords) -> dict[str, set[str | None]]:
    """For each phase name, the names it was seen directly inside of."""
    phases = list(records.phases())
    names = {phase.id: phase.name for phase in phases}
    parents = defaultdict(set)
    for phase in phases:
        parents[phase.name].add(None if phase.parent is None else names[phase.parent])
    return parents
