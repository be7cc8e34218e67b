"""What all outputs of a run share: clocks, syncs, endings, and how processes are named."""

from __future__ import annotations

from collections import Counter
from typing import Final

from slime_profiler_plugin.layout import rollout_name
from slime_profiler_plugin.read import ProcessRecords, Run, TraceWindow

from ._endings import ENDED_EARLY, find_endings, find_replacements
from ._notes import name_attempt
from ._options import MergeOptions
from ._records import count_open
from ._report import ProcessReport
from ._selection import Selection, SyncIndex
from ._times import RunClocks
from ._tracks import DOT, format_rank, name_processes, presentation_order

#: A step of the wall clock that is worth a warning.
_NOTABLE_STEP_NS: Final = 1_000_000
#: The part of a process that its records are.
PHASES: Final = "phases"


class Shared:
    """What all outputs of a run have in common."""

    def __init__(self, run: Run, options: MergeOptions) -> None:
        self.run = run
        self.clocks = RunClocks(run.processes, run.windows)
        self.syncs = SyncIndex(run)
        self.endings = find_endings(run.processes, self.clocks)
        self._replaced = find_replacements(run.processes, self.endings, self.clocks)
        ordered = sorted(run.processes, key=lambda r: presentation_order(r.process))
        self._names = name_processes(ordered, len(run.attempts) > 1)
        #: Processes and windows that are asked for.
        self.ordered = [r for r in ordered if options.takes(r.process.role, r.process.rank)]
        self.windows = [w for w in run.windows if options.takes(w.role, w.rank)]
        self.left_out = [
            self._names[r.key] for r in ordered if not options.takes(r.process.role, r.process.rank)
        ]
        self.left_out += [w.path.name for w in run.windows if not options.takes(w.role, w.rank)]

    def name(self, records: ProcessRecords, part: str | None = None) -> str:
        """``actor rank 3 · tp1 pp0 dp1 · phases``, with what the reader must know in between."""
        parts = [self._names[records.key]]
        alignment = self.clocks.of_process(records)
        if alignment.domain != self.clocks.reference:
            parts.append(alignment.basis)
        if self.endings[records.key] == ENDED_EARLY:
            parts.append(ENDED_EARLY)
        if part == PHASES and any(d.kind == "truncated" for d in records.damage):
            parts.append("truncated")
        return DOT.join([*parts, part] if part else parts)

    def labels(self, records: ProcessRecords, rollouts: list[int | str]) -> str:
        """Ids of a process, as its labels."""
        process = records.process
        told = [
            _ids_label(self.run.run_id, process.attempt, rollouts),
            f"host {process.host}",
            f"pid {process.pid}",
            self.clocks.of_process(records).basis,
            self.endings[records.key],
        ]
        return DOT.join(told)

    def windows_of(self, records: ProcessRecords, selection: Selection) -> list[TraceWindow]:
        """The torch.profiler windows of a process that hold something of the output."""
        return [w for w in self.windows if _window_key(w) == records.key and selection.has(w)]

    def stray_windows(self, selection: Selection) -> list[TraceWindow]:
        """The same of processes that have no record file here."""
        keys = {records.key for records in self.run.processes}
        return [w for w in self.windows if _window_key(w) not in keys and selection.has(w)]

    def clock_warnings(self) -> list[str]:
        """Steps of a wall clock: what it places is off by as much on one side of them."""
        return [
            f"the wall clock of {domain} was stepped by {step.step_ns / 1e9:+.3f} s"
            for domain, alignment in self.clocks.alignments.items()
            for step in (alignment.own.steps if alignment.own else ())
            if abs(step.step_ns) >= _NOTABLE_STEP_NS
        ]

    def describe(self, records: ProcessRecords) -> ProcessReport:
        """For the report."""
        process = records.process
        dropped: Counter[str] = Counter()
        for drop in records.drops:
            dropped[f"{drop.what}: {drop.reason}"] += drop.count
        return ProcessReport(
            name=self._names[records.key],
            attempt=process.attempt,
            role=process.role,
            rank=process.rank,
            host=process.host,
            pid=process.pid,
            incarnation=process.incarnation,
            clock_domain=process.clock_domain,
            clock=self.clocks.of_process(records).basis,
            ending=self.endings[records.key],
            replaced_by=self._replaced.get(records.key),
            open_phases=dict(count_open(records)),
            dropped=dict(dropped),
        )


def _window_key(window: TraceWindow) -> tuple[str, str]:
    identity = window.header.identity
    return str(identity.get("host")), str(identity.get("incarnation"))


def name_stray(run: Run, window: TraceWindow, rollouts: list[int | str]) -> tuple[str, str]:
    """Name and labels of a process of which there is only a window."""
    identity = window.header.identity
    parts = [format_rank(window.role, window.rank, {}, identity.get("pid", 0))]
    if len(run.attempts) > 1:
        parts.append(f"attempt {window.attempt}")
    return DOT.join([*parts, "no records"]), _ids_label(run.run_id, window.attempt, rollouts)


def _ids_label(run_id: str, attempt: int, rollouts: list[int | str]) -> str:
    return DOT.join([name_attempt(run_id, attempt), ", ".join(map(name_rollout, rollouts))])


def name_rollout(rollout: int | str) -> str:
    """As its file is named."""
    return rollout_name(rollout) if isinstance(rollout, int) else rollout
