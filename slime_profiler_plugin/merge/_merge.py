"""From a run to its timelines: plan, survey every source, write every source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from slime_profiler_plugin.read import Damage, ProcessRecords, TraceWindow, VanishedError, read_run

from ._arrows import join_arrows
from ._flows import IdSource
from ._ledger import Ledger
from ._notes import note_absence, note_missing, note_rollouts
from ._records import RecordSource
from ._report import DamageReport, MergeReport, OutputReport, RanksReport
from ._rollouts import MergeError, RolloutChoice, Wanted, plan_outputs
from ._selection import Selection
from ._shared import PHASES, Shared, name_rollout, name_stray
from ._source import Source
from ._times import RunClocks
from ._tracks import DOT, Tracks
from ._window import WindowSource
from ._writer import TraceWriter

#: A file gets its final name once, and there are seconds between two of a process.
_RETRIES: Final = 4


def merge_run(
    folders: Sequence[Path | str],
    rollouts: RolloutChoice = "latest",
    out: Path | None = None,
    attempt: int | None = None,
) -> MergeReport:
    """Merge one run, of which `folders` are copies, into one timeline per output.

    `attempt`: only what that attempt recorded. `out`: a file (``.json`` or ``.json.gz``) for one output,
    a folder for one per rollout, ``None`` for ``merged/`` in the first folder. Raises `read.ReadError`,
    `MergeError` and `MergeUsageError` when nothing can be written, and `ConservationError` should
    anything have got lost.

    Of a run that is being recorded, what is there so far: when a file gets its final name while it is
    read, the merge begins again, a bounded number of times.
    """
    for _ in range(_RETRIES):
        with suppress(VanishedError):
            return _merge_once(folders, rollouts, out, attempt)
    return _merge_once(folders, rollouts, out, attempt)


def _merge_once(
    folders: Sequence[Path | str], rollouts: RolloutChoice, out: Path | None, attempt: int | None
) -> MergeReport:
    run = read_run(folders)
    warnings: list[str] = []
    if attempt is not None:
        run.keep_attempt(attempt)
    shared = Shared(run)
    wanted = plan_outputs(run, shared.endings, rollouts, out, warnings)
    warnings.extend(shared.clock_warnings())
    damage = {str(d): d for d in run.damage}
    outputs = [_write_output(shared, each, damage, warnings) for each in wanted]
    return MergeReport(
        run_id=run.run_id,
        attempts=run.attempts,
        outputs=outputs,
        processes=[shared.describe(records) for records in shared.ordered],
        ranks=[
            RanksReport(
                attempt=r.attempt, role=r.role, seen=len(r.seen), world_size=r.world_size, missing=r.missing
            )
            for r in run.role_ranks()
        ],
        damage=[
            DamageReport(file=d.file, kind=d.kind, reason=d.reason, line=d.line, lost=d.lost)
            for d in damage.values()
        ],
        warnings=warnings,
        ignored=[str(path) for path in run.ignored],
    )


def _write_output(
    shared: Shared, wanted: Wanted, damage: dict[str, Damage], warnings: list[str]
) -> OutputReport:
    selection = Selection(shared.run, shared.clocks, wanted.rollouts)
    warnings.extend(_tell_attempts(selection, wanted))
    tracks, ids = Tracks(), IdSource()
    sources: list[Source] = []
    title = ", ".join(map(name_rollout, wanted.rollouts))
    notes = note_rollouts(shared.run.run_id, title, selection, tracks)

    def survey(source: Source) -> None:
        source.survey()
        source.ledger.check()
        sources.append(source)

    def survey_window(window: TraceWindow, records: ProcessRecords | None, name: str, labels: str) -> None:
        clock = shared.clocks.of_window(window, records)
        source = WindowSource(window, clock, selection, tracks, ids, (name, labels))
        survey(source)
        damage.update((str(d), d) for d in source.damage)

    for records in shared.ordered:
        labels = shared.labels(records, wanted.rollouts)
        alignment = shared.clocks.of_process(records)
        recorded = RecordSource(
            records, alignment, selection, shared.syncs, tracks, (shared.name(records, PHASES), labels)
        )
        survey(recorded)
        windows = shared.windows_of(records, selection)
        for window in windows:
            part = f"window {window.path.parent.name}" if len(windows) > 1 else None
            survey_window(window, records, shared.name(records, part), labels)
        if recorded.pid is None and _lived_in(records, shared.clocks, selection):
            absent = "nothing in this rollout"
            pid = tracks.add_process(shared.name(records, PHASES), labels + DOT + absent)
            about = {"run_id": shared.run.run_id, "attempt": records.process.attempt}
            notes.append(note_absence(pid, absent, about, selection, tracks))
    for window in shared.stray_windows(selection):
        name, labels = name_stray(shared.run, window, wanted.rollouts)
        survey_window(window, None, name, labels)
    notes.extend(note_missing(shared.run, title, selection, tracks))

    others = shared.other_windows(selection)
    damage.update((str(d), d) for other in others for d in other.damage)
    starts = [source.first_ns for source in sources if source.first_ns is not None]
    if not starts:
        raise MergeError(f"run {shared.run.run_id}: nothing of {wanted.path.name} could be read")
    origin = min(starts)
    records_only = [source for source in sources if isinstance(source, RecordSource)]
    arrows = join_arrows((end for source in records_only for end in source.endpoints), ids)
    mapping = shared.clocks.mapping
    report = OutputReport(
        path=str(wanted.path),
        rollouts=wanted.rollouts,
        lasted_ns={attempt: end - start for attempt, (start, end) in sorted(selection.spans.items())},
        events=0,
        notes=len(notes),
        arrows=arrows.drawn.total(),
        arrows_drawn=dict(arrows.drawn),
        arrows_not_drawn=dict(arrows.undrawn),
        base_ns=origin,
        base_unix_ns=origin if mapping is None else mapping.unix_ns(origin),
        total=Ledger(source="all"),
        sources=[*(source.ledger for source in sources), *(other.ledger for other in others)],
    )
    with TraceWriter(wanted.path, _head(shared, report)) as writer:
        writer.write_values(list(tracks.metadata_events()))
        writer.write_values([note.event(origin) for note in notes])
        for source in sources:
            written = 0
            for batch in source.events(origin):
                written += len(batch)
                writer.write(batch)
            _check_written(source.ledger, written)
            report.events += written
            report.total.add(source.ledger)
            if isinstance(source, RecordSource) and source.pid is not None:
                writer.write([end.encode(origin) for end in arrows.ends.get(source.pid, ())])
        for other in others:
            report.total.add(other.ledger)
        report.total.check()
        writer.finish({"slime_profiler_conservation": _conservation(report)})
    return report


def _tell_attempts(selection: Selection, wanted: Wanted) -> Iterator[str]:
    """That one file shows several attempts, which may be hours apart."""
    attempts = sorted(selection.spans)
    if len(attempts) > 1:
        starts = [start for start, _ in selection.spans.values()]
        apart = (max(starts) - min(starts)) / 1e9
        told = ", ".join(map(str, attempts))
        yield f"{wanted.path.name} shows attempts {told}, {apart:.0f} s apart; --attempt N merges one"


def _check_written(ledger: Ledger, written: int) -> None:
    if written != ledger.written:
        counted = Ledger(source=f"{ledger.source}, second reading", read=ledger.written, written=written)
        counted.check()


def _lived_in(records: ProcessRecords, clocks: RunClocks, selection: Selection) -> bool:
    align = clocks.of_process(records)
    first, last = align.to_reference(records.first_ns), align.to_reference(records.last_ns)
    return selection.touches(records.process.attempt, first, last)


def _head(shared: Shared, report: OutputReport) -> dict[str, Any]:
    run = shared.run
    about = {
        "version": 1,
        "run_id": run.run_id,
        "attempts": run.attempts,
        "rollouts": report.rollouts,
        "reference_clock_domain": shared.clocks.reference,
        "base_ns": report.base_ns,
        "base_unix_ns": report.base_unix_ns,
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
    if report.base_unix_ns is not None:
        head["baseTimeNanoseconds"] = report.base_unix_ns
    head["slime_profiler_merge"] = about
    return head


def _conservation(report: OutputReport) -> dict[str, Any]:
    return {
        "total": report.total,
        "notes": report.notes,
        "sources": report.sources,
        "arrows": report.arrows,
        "arrows_drawn": report.arrows_drawn,
        "arrows_not_drawn": report.arrows_not_drawn,
    }
