"""From a run to its timelines: plan, survey every source, write every source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from slime_profiler_plugin.read import (
    BASE_KEY,
    Damage,
    ProcessRecords,
    TraceFile,
    TraceWindow,
    VanishedError,
    read_run,
)

from ._archive import Archived, Member, archive_sources, refuse_inputs
from ._assemble import Canvas, Frame, Readings, Written, scratch_folder, write_output
from ._chosen import Who, choose_traces, tell_nothing_chosen, tell_unmet
from ._clock_check import check_report
from ._filters import NOT_OF_CATEGORY, TOO_SHORT
from ._flows import IdSource
from ._ledger import Ledger
from ._naming import UNKNOWN_CLOCK, WALL_CLOCK, name_trace
from ._notes import Note, note_absence, note_missing, note_rollouts
from ._options import MergeOptions
from ._records import RecordSource
from ._report import (
    InputReport,
    MergeReport,
    OutputReport,
    RanksReport,
    conservation,
    report_damage,
)
from ._rollouts import MergeError, RolloutChoice, Wanted, plan_outputs
from ._selection import Selection
from ._shared import PHASES, Shared, name_rollout, name_stray
from ._source import members
from ._times import RunClocks, UnixClock
from ._trace import TraceSource, count_other
from ._tracks import DOT, Tracks

#: A file gets its final name once, and there are seconds between two of a process.
_RETRIES: Final = 4


def merge_run(
    folders: Sequence[Path | str],
    rollouts: RolloutChoice = "latest",
    out: Path | None = None,
    attempt: int | None = None,
    options: MergeOptions = MergeOptions(),  # noqa: B008 - frozen
    extras: Sequence[TraceFile] = (),
) -> MergeReport:
    """Merge one run, of which `folders` are copies, into one timeline per output.

    `attempt`: only what that attempt recorded. `out`: a file (``.json`` or ``.json.gz``) for one output,
    a folder for one per rollout, ``None`` for ``merged/`` in the first folder. `extras`: traces that others
    wrote meanwhile (engines, Nsight Systems, Ray); of each, what touches an output's rollouts goes into it.

    Raises `read.ReadError`, `MergeError` and `MergeUsageError` when nothing can be written, `WorkerError`
    when a worker process died, and `ConservationError` should anything have got lost.

    Of a run that is being recorded, what is there so far: when a file gets its final name while it is
    read, the merge begins again, a bounded number of times.
    """
    for _ in range(_RETRIES):
        with suppress(VanishedError):
            return _merge_once(folders, rollouts, out, attempt, options, extras)
    return _merge_once(folders, rollouts, out, attempt, options, extras)


def _merge_once(
    folders: Sequence[Path | str],
    rollouts: RolloutChoice,
    out: Path | None,
    attempt: int | None,
    options: MergeOptions,
    extras: Sequence[TraceFile],
) -> MergeReport:
    run = read_run(folders)
    warnings: list[str] = []
    if attempt is not None:
        run.keep_attempt(attempt)
    extras = [*(beside.trace for beside in run.beside), *extras]
    shared = Shared(run, options)
    members = [Who(r.process.role, r.process.rank) for r in run.processes]
    members += [Who(w.role, w.rank) for w in run.windows]
    members += [Who(extra.owner.role, extra.owner.rank) for extra in extras]
    extras, left_out = choose_traces(extras, options)
    if members and not shared.ordered and not shared.windows and not extras:
        raise MergeError(f"run {run.run_id}: {tell_nothing_chosen(options, members)}")
    warnings.extend(tell_unmet(options, members))
    wanted = plan_outputs(run, shared.endings, rollouts, out, warnings)
    for each in wanted:
        refuse_inputs(each.path, extras, options)
    warnings.extend(shared.clock_warnings())
    damage = {str(d): d for d in run.damage}
    output = _RunOutput(shared, options, extras, damage, warnings)
    outputs = [output.write(each) for each in wanted]
    warnings.extend(told for each in outputs for told in each.tell_empty())
    return MergeReport(
        run_id=run.run_id,
        attempts=run.attempts,
        outputs=outputs,
        processes=[shared.describe(records) for records in shared.ordered],
        inputs=list(output.inputs.values()),
        ranks=[
            RanksReport(
                attempt=r.attempt,
                role=r.role,
                seen=len(r.seen),
                world_size=r.world_size,
                missing=[rank for rank in r.missing if options.takes(r.role, rank)],
            )
            for r in run.role_ranks()
            if options.roles is None or r.role in options.roles
        ],
        damage=list(map(report_damage, damage.values())),
        warnings=warnings,
        ignored=[str(path) for path in run.ignored],
        left_out=[*shared.left_out, *left_out],
    )


class _RunOutput:
    """Writes the outputs of a run one after the other; what other rollouts' windows hold is counted once."""

    def __init__(
        self,
        shared: Shared,
        options: MergeOptions,
        extras: Sequence[TraceFile],
        damage: dict[str, Damage],
        warnings: list[str],
    ) -> None:
        self.inputs: dict[Path, InputReport] = {}
        self._shared = shared
        self._options = options
        self._extras = extras
        self._damage = damage
        self._warnings = warnings
        self._readings = Readings(options)
        self._counted: dict[Path, tuple[Ledger, list[Damage]]] = {}

    def write(self, wanted: Wanted) -> OutputReport:
        """One of them."""
        shared = self._shared
        selection = Selection(shared.run, shared.clocks, wanted.rollouts)
        self._warnings.extend(_tell_attempts(selection, wanted))
        with scratch_folder(wanted.path) as folder:
            by_process, strays, extras = self._traces(selection, wanted)
            traces = [*(t for group in by_process.values() for t in group), *strays, *extras]
            self._readings.survey(traces, folder)
            for trace in traces:
                self._damage.update((str(d), d) for d in trace.damage)
            by_process = {key: _usable(group) for key, group in by_process.items()}
            strays, extras = _usable(strays), _usable(extras)
            for extra in extras:
                self._note_input(extra, wanted.path)
            tracks, ids = Tracks(), IdSource()
            title = ", ".join(map(name_rollout, wanted.rollouts))
            notes = note_rollouts(shared.run.run_id, title, selection, tracks)
            sources = list(self._claim(by_process, wanted, selection, tracks, ids, notes))
            for trace in (*strays, *extras):
                trace.claim(tracks, ids)
                sources.append(trace)
            notes.extend(note_missing(shared.run, title, selection, tracks, self._options))
            starts = [source.first_ns for source in sources if source.first_ns is not None]
            others = self._count_others(selection)
            if not starts:
                raise MergeError(f"run {shared.run.run_id}: nothing of {wanted.path.name} could be read")
            origin = min([*starts, *(note.start_ns for note in notes)])
            return self._assemble(wanted, folder, sources, others, notes, tracks, ids, origin, selection)

    def _traces(
        self, selection: Selection, wanted: Wanted
    ) -> tuple[dict[tuple[str, str], list[TraceSource]], list[TraceSource], list[TraceSource]]:
        """Windows by process, windows of processes without records, and what others wrote."""
        shared = self._shared
        by_process: dict[tuple[str, str], list[TraceSource]] = {}
        for records in shared.ordered:
            labels = shared.labels(records, wanted.rollouts)
            windows = shared.windows_of(records, selection)
            by_process[records.key] = [
                self._window(
                    window,
                    records,
                    selection,
                    (
                        shared.name(
                            records, f"window {window.path.parent.name}" if len(windows) > 1 else None
                        ),
                        labels,
                    ),
                )
                for window in windows
            ]
        strays = [
            self._window(window, None, selection, name_stray(shared.run, window, wanted.rollouts))
            for window in shared.stray_windows(selection)
        ]
        spans = [(float(start), float(end)) for start, end in selection.spans.values()]
        extras = [
            TraceSource(
                trace,
                UnixClock.of(trace, shared.clocks.mapping),
                spans,
                (name_trace(trace.owner, trace.path, trace.format), f"file {trace.path.name}"),
            )
            for trace in self._extras
        ]
        return by_process, strays, extras

    def _window(
        self,
        window: TraceWindow,
        records: ProcessRecords | None,
        selection: Selection,
        shown: tuple[str, str],
    ) -> TraceSource:
        annotation = {
            "run_id": window.header.identity.get("run_id"),
            "attempt": window.attempt,
            "rollouts": window.covers,
        }
        return TraceSource(
            window.trace,
            self._shared.clocks.of_window(window, records),
            selection.stretches(window.attempt, window.covers),
            shown,
            members(annotation),
        )

    def _claim(
        self,
        by_process: dict[tuple[str, str], list[TraceSource]],
        wanted: Wanted,
        selection: Selection,
        tracks: Tracks,
        ids: IdSource,
        notes: list[Note],
    ) -> Iterator[RecordSource | TraceSource]:
        """The sources of every process with records, which take their places among the tracks."""
        shared = self._shared
        for records in shared.ordered:
            labels = shared.labels(records, wanted.rollouts)
            alignment = shared.clocks.of_process(records)
            shown = (shared.name(records, PHASES), labels)
            recorded = RecordSource(records, alignment, selection, shared.syncs, tracks, shown, self._options)
            recorded.survey()
            recorded.ledger.check()
            yield recorded
            for trace in by_process[records.key]:
                trace.claim(tracks, ids)
                yield trace
            if recorded.pid is None and _lived_in(records, shared.clocks, selection):
                absent = "nothing in this rollout"
                pid = tracks.add_process(shared.name(records, PHASES), labels + DOT + absent)
                about = {"run_id": shared.run.run_id, "attempt": records.process.attempt}
                notes.append(note_absence(pid, absent, about, selection, tracks))

    def _count_others(self, selection: Selection) -> list[Ledger]:
        """What the windows of other rollouts hold."""
        others = [window.trace for window in self._shared.windows if not selection.has(window)]
        fresh = [trace for trace in others if trace.path not in self._counted]
        counted = self._readings.run(count_other, fresh, fresh, "counting")
        self._counted.update(zip((trace.path for trace in fresh), counted, strict=True))
        found = [self._counted[trace.path] for trace in others]
        self._damage.update((str(d), d) for _, damage in found for d in damage)
        return [ledger for ledger, _ in found]

    def _note_input(self, extra: TraceSource, output: Path) -> None:
        path = extra.trace.path
        is_filtered = not {NOT_OF_CATEGORY, TOO_SHORT}.isdisjoint(extra.ledger.dropped)
        if extra.survey.is_wall and not extra.ledger.written and not is_filtered:
            self._warnings.append(f"{path}: nothing of it lies in the time of {output.name}")
        clock = WALL_CLOCK if extra.survey.is_wall else UNKNOWN_CLOCK
        self.inputs[path] = InputReport(
            file=str(path),
            format=extra.trace.format,
            name=extra.name,
            clock=clock,
            clock_check=self._check_clock(extra),
        )
        if not extra.survey.is_wall:
            found = Damage(str(path), "refused", "its clock is unknown: it cannot be placed in the run")
            self._damage[str(found)] = found

    def _check_clock(self, extra: TraceSource) -> dict[str, int | None] | None:
        """How far a report of Nsight Systems is from the records."""
        if extra.trace.format != "nsys" or not extra.survey.is_wall:
            return None
        if extra.trace.path in self.inputs:
            return self.inputs[extra.trace.path].clock_check
        return check_report(extra.trace.path, self._shared.run)._asdict()

    def _assemble(
        self,
        wanted: Wanted,
        folder: Path,
        sources: list[RecordSource | TraceSource],
        others: list[Ledger],
        notes: list[Note],
        tracks: Tracks,
        ids: IdSource,
        origin: int,
        selection: Selection,
    ) -> OutputReport:
        shared = self._shared
        mapping = shared.clocks.mapping
        base_unix_ns = origin if mapping is None else mapping.unix_ns(origin)
        ledgers = [*(source.ledger for source in sources), *others]

        def tail(written: Written) -> dict[str, Any]:
            ledgers[:] = [*(source.ledger for source in sources), *others]
            return {"slime_profiler_conservation": conservation(written, len(notes), ledgers)}

        written = write_output(
            wanted.path,
            folder,
            sources,
            others,
            Canvas(tracks, ids, notes, origin),
            Frame(_head(shared, wanted, origin, base_unix_ns, self._options.mark), tail),
            self._options,
        )
        report = OutputReport.of(
            written,
            path=wanted.path,
            rollouts=wanted.rollouts,
            lasted_ns={attempt: end - start for attempt, (start, end) in sorted(selection.spans.items())},
            notes=len(notes),
            base_ns=origin,
            base_unix_ns=base_unix_ns,
            sources=ledgers,
        )
        if self._options.archive:
            report.note_archive(self._archive(wanted, folder, sources, notes, tracks, origin))
        return report

    def _archive(
        self,
        wanted: Wanted,
        folder: Path,
        sources: list[RecordSource | TraceSource],
        notes: list[Note],
        tracks: Tracks,
        origin: int,
    ) -> Archived:
        """The records as a trace of their own, and beside it the windows and other traces as they are."""
        records = [source for source in sources if isinstance(source, RecordSource)]
        phases = folder / "phases.trace.json.gz"
        write_output(
            phases,
            folder,
            records,
            [],
            Canvas(tracks, IdSource(), notes, origin),
            Frame({"displayTimeUnit": "ms"}, lambda _: {}),
            self._options,
        )
        run_id = self._shared.run.run_id
        attributes = {
            "slime_profiler.run_id": run_id,
            "slime_profiler.rollouts": ", ".join(map(str, wanted.rollouts)),
        }
        first = Member(phases, f"run {run_id}", origin)
        traces = [source for source in sources if isinstance(source, TraceSource)]
        return archive_sources(wanted.path, [first], traces, attributes)


def _usable(traces: list[TraceSource]) -> list[TraceSource]:
    return [trace for trace in traces if not trace.is_refused]


def _tell_attempts(selection: Selection, wanted: Wanted) -> Iterator[str]:
    """That one file shows several attempts, which may be hours apart."""
    attempts = sorted(selection.spans)
    if len(attempts) > 1:
        starts = [start for start, _ in selection.spans.values()]
        apart = (max(starts) - min(starts)) / 1e9
        told = ", ".join(map(str, attempts))
        yield f"{wanted.path.name} shows attempts {told}, {apart:.0f} s apart; --attempt N merges one"


def _lived_in(records: ProcessRecords, clocks: RunClocks, selection: Selection) -> bool:
    align = clocks.of_process(records)
    first, last = align.to_reference(records.first_ns), align.to_reference(records.last_ns)
    return selection.touches(records.process.attempt, first, last)


def _head(
    shared: Shared, wanted: Wanted, base_ns: int, base_unix_ns: int | None, mark: str
) -> dict[str, Any]:
    run = shared.run
    about = {
        "version": 1,
        "run_id": run.run_id,
        "attempts": run.attempts,
        "rollouts": wanted.rollouts,
        "reference_clock_domain": shared.clocks.reference,
        "base_ns": base_ns,
        "base_unix_ns": base_unix_ns,
        "processes": [shared.describe(records) for records in shared.ordered],
        "windows": [
            {
                "file": f"{w.path.parent.name}/{w.path.name}",
                "identity": w.header.identity,
                "metadata": w.header.metadata,
            }
            for w in run.windows
        ],
    }
    head: dict[str, Any] = {"displayTimeUnit": "ms"}
    if base_unix_ns is not None:
        head[BASE_KEY] = base_unix_ns
    head[mark] = about
    return head
