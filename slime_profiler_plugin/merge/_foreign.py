"""Merging traces that belong to no run of ours: anyone's, on the clocks that they state."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from slime_profiler_plugin.layout import TRACE_SUFFIXES, refuse_as_folder
from slime_profiler_plugin.read import (
    BASE_KEY,
    MERGE_KEY,
    MOST_RANKS,
    Damage,
    Discovery,
    ReadError,
    TraceFile,
    TraceHeader,
    TraceRefusedError,
    discover,
    open_trace,
)
from slime_profiler_plugin.schema import WINDOW_IDENTITY_KEY, WINDOW_ROLLOUTS_KEY

from ._archive import archive_sources, refuse_inputs
from ._assemble import Canvas, Frame, Readings, Written, scratch_folder, write_output
from ._chosen import Who, choose_traces, tell_nothing_chosen, tell_unmet
from ._filters import NOT_OF_CATEGORY, TOO_SHORT
from ._flows import IdSource
from ._naming import UNKNOWN_CLOCK, WALL_CLOCK, name_traces, trace_order
from ._notes import Note
from ._options import MergeOptions
from ._report import (
    InputReport,
    MergeReport,
    OutputReport,
    RanksReport,
    conservation,
    report_damage,
)
from ._rollouts import MergeError, MergeUsageError
from ._times import UnixClock
from ._trace import TraceSource
from ._tracks import DOT, Tracks
from ._words import format_missing

#: Where a merge of traces goes when nothing else is said.
DEFAULT_NAME: Final = "merged.trace.json.gz"
#: Sources further apart than this are hardly of one run, ns.
_FAR_APART_NS: Final = 24 * 3600 * 10**9


def merge_traces(
    paths: Sequence[Path | str],
    out: Path | None = None,
    options: MergeOptions = MergeOptions(),  # noqa: B008 - frozen
) -> MergeReport:
    """Merge the traces in `paths`, files and folders, into one.

    `out`: a file (``.json`` or ``.json.gz``) or a folder; ``None`` for ``merged.trace.json.gz`` in the
    working directory. Raises `read.ReadError`, `MergeError` and `MergeUsageError` when nothing can be
    written, `WorkerError` when a worker process died, and `ConservationError` should anything have got lost.
    """
    return merge_discovered(discover([Path(path) for path in paths]), out, options)


def merge_discovered(found: Discovery, out: Path | None, options: MergeOptions) -> MergeReport:
    """As `merge_traces`, for what was found already."""
    path = _output_path(out)
    refuse_inputs(path, found.traces, options)
    taken, left_out = choose_traces(found.traces, options)
    traces = sorted(taken, key=trace_order)
    damage = {str(d): d for d in found.damage}
    members = [Who(t.owner.role, t.owner.rank) for t in found.traces]
    if members and not traces:
        raise MergeError(f"nothing to merge: {tell_nothing_chosen(options, members)}{_reasons(found)}")
    if not traces:
        raise MergeError(f"nothing to merge{_reasons(found)}")
    with scratch_folder(path) as folder:
        sources = [
            TraceSource(trace, UnixClock.of(trace, None), [_ALWAYS], (name, _labels(trace)))
            for trace, name in zip(traces, name_traces(traces), strict=True)
        ]
        Readings(options).survey(sources, folder)
        for source in sources:
            damage.update((str(d), d) for d in source.damage)
        sources = [source for source in sources if not source.is_refused]
        warnings = [*tell_unmet(options, members), *_place_unknown(sources)]
        ranks = _count_ranks(traces, options)
        starts = [source.first_ns + source.shift_ns for source in sources if source.first_ns is not None]
        is_filtered = any(source.ledger.dropped for source in sources)
        if not starts and (is_filtered or not any(source.ledger.described for source in sources)):
            none = "none is of what was asked for" if _is_filtered(sources) else ""
            raise MergeError(f"no event to merge{none and f': {none}'}{_damage_told(damage)}")
        warnings.extend(_tell_distance(sources))
        warnings.extend(_tell_duplicates(traces))
        warnings.extend(_tell_worlds(ranks))
        output = _assemble(path, folder, sources, ranks, min(starts, default=0), options)
        warnings.extend(output.tell_empty())
    return MergeReport(
        run_id=None,
        attempts=[],
        outputs=[output],
        processes=[],
        inputs=[
            InputReport(
                file=str(source.trace.path),
                format=source.trace.format,
                name=source.name,
                clock=WALL_CLOCK if source.survey.is_wall else UNKNOWN_CLOCK,
            )
            for source in sources
        ],
        ranks=ranks,
        damage=list(map(report_damage, damage.values())),
        warnings=warnings,
        ignored=[f"{skipped} ({why})" for skipped, why in found.skipped],
        left_out=left_out,
    )


_ALWAYS: Final = (float("-inf"), float("inf"))


def _output_path(out: Path | None) -> Path:
    path = Path(DEFAULT_NAME) if out is None else out
    if not path.name.endswith(TRACE_SUFFIXES):
        why = refuse_as_folder(path)
        if why is not None:
            raise MergeUsageError(f"-o {out}: {why}")
        path = path / DEFAULT_NAME
    if out is None and path.exists() and not _is_merged(path):
        raise MergeUsageError(f"{path} is here already, and not of a merge: name another output with -o")
    return path


def _is_merged(path: Path) -> bool:
    try:
        open_trace(path)
    except TraceRefusedError as error:
        return error.is_merged
    except ReadError:
        pass
    return False


def _labels(trace: TraceFile) -> str:
    return DOT.join([f"file {trace.path.name}", trace.format])


def _place_unknown(sources: Sequence[TraceSource]) -> list[str]:
    """Shift sources of an unknown clock to the start of the others; those that overlap may share a clock."""
    unknown = [s for s in sources if s.first_ns is not None and not s.survey.is_wall]
    known = [s.first_ns for s in sources if s.first_ns is not None and s.survey.is_wall]
    if not unknown:
        return []
    for source in unknown:
        source.name = DOT.join([source.name, UNKNOWN_CLOCK])
    start = min(known, default=None)
    groups = _overlapping(unknown)
    together = len(groups) == 1
    for group in groups:
        first = min(s.first_ns for s in group if s.first_ns is not None)
        at = first if together else 0
        for source in group:
            source.shift_ns = (at if start is None else start) - first
    if len(sources) == 1:
        return []
    told = ", ".join(s.trace.path.name for s in unknown[:_TOLD])
    more = f" and {len(unknown) - _TOLD} more" if len(unknown) > _TOLD else ""
    placed = "their times stand as they are" if together and start is None else "they stand at the start"
    return [f"no wall clock in {told}{more}: how they lie to other sources in time is unknown; {placed}"]


_TOLD: Final = 5
#: There is a process: what was merged has events.
_FIRST_PID: Final = 1


def _overlapping(sources: Sequence[TraceSource]) -> list[list[TraceSource]]:
    """Groups of sources whose times overlap, as they are in the files."""
    groups: list[list[TraceSource]] = []
    reach: int | None = None
    for source in sorted(sources, key=lambda s: s.first_ns or 0):
        first, last = source.first_ns or 0, source.last_ns or 0
        if reach is not None and first <= reach:
            groups[-1].append(source)
            reach = max(reach, last)
        else:
            groups.append([source])
            reach = last
    return groups


def _is_filtered(sources: Sequence[TraceSource]) -> bool:
    asked = {NOT_OF_CATEGORY, TOO_SHORT}
    return any(not asked.isdisjoint(source.ledger.dropped) for source in sources)


def _tell_distance(sources: Sequence[TraceSource]) -> list[str]:
    timed = [s for s in sources if s.first_ns is not None and s.survey.is_wall]
    if len(timed) < 2:
        return []
    first = min(timed, key=lambda s: s.first_ns or 0)
    last = max(timed, key=lambda s: s.first_ns or 0)
    apart = (last.first_ns or 0) - (first.first_ns or 0)
    if apart < _FAR_APART_NS:
        return []
    days = apart / (24 * 3600 * 1e9)
    return [f"{first.trace.path.name} and {last.trace.path.name} lie {days:.1f} days apart"]


def _tell_duplicates(traces: Sequence[TraceFile]) -> list[str]:
    """That several files are of one rank."""
    by_rank: dict[tuple[str | None, int], list[Path]] = defaultdict(list)
    for trace in traces:
        owner = trace.owner
        if owner.rank is not None and owner.role != "engine":
            by_rank[owner.role, owner.rank].append(trace.path)
    told = []
    for (role, rank), paths in by_rank.items():
        if len(paths) > 1:
            who = f"{role} rank {rank}" if role else f"rank {rank}"
            told.append(f"{len(paths)} files say they are {who}: {_name_files(paths)}; all are kept")
    return told


def _name_files(paths: Sequence[Path]) -> str:
    """The first of them, by as much of their paths as tells all apart."""
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        common = os.path.commonpath([path.absolute().parent for path in paths])
        names = [os.path.relpath(path, common) for path in paths]
    return ", ".join(names[:_TOLD])


def _tell_worlds(ranks: Sequence[RanksReport]) -> Iterator[str]:
    """Sizes that cannot be believed: who is missing is not said then."""
    for report in ranks:
        if report.world_size is not None and report.world_size > MOST_RANKS:
            yield f"{report.role}: a world of {report.world_size} ranks is not believed: none is missing"


def _count_ranks(traces: Sequence[TraceFile], options: MergeOptions) -> list[RanksReport]:
    """Who is there, of those that number themselves; a single trace is not asked for the others."""
    groups: dict[str, list[TraceFile]] = defaultdict(list)
    for trace in traces:
        if trace.owner.rank is not None:
            groups[trace.owner.role or "rank"].append(trace)
    reports = []
    for role, group in groups.items():
        seen = {trace.owner.rank for trace in group}
        size = max((t.owner.world_size for t in group if t.owner.world_size is not None), default=None)
        listed = range(size) if size is not None and size <= MOST_RANKS and len(group) > 1 else range(0)
        named = None if role == "rank" else role
        missing = [rank for rank in listed if rank not in seen and options.takes(named, rank)]
        reports.append(RanksReport(attempt=0, role=role, seen=len(seen), world_size=size, missing=missing))
    return reports


def _assemble(
    path: Path,
    folder: Path,
    sources: list[TraceSource],
    ranks: list[RanksReport],
    origin: int,
    options: MergeOptions,
) -> OutputReport:
    tracks, ids = Tracks(), IdSource()
    for source in sources:
        source.claim(tracks, ids)
    notes = list(_note_missing(ranks, origin, tracks))
    last = max((s.last_ns + s.shift_ns for s in sources if s.last_ns is not None), default=origin)
    base = origin if any(s.survey.is_wall and s.first_ns is not None for s in sources) else None
    head: dict[str, Any] = {"displayTimeUnit": "ms"}
    if options.mark != MERGE_KEY:  # a single trace, written anew: it says of itself what it said
        head.update(_own_words(sources[0].trace.header))
    if base is not None:
        head[BASE_KEY] = base
    head[options.mark] = {
        "version": 1,
        "base_unix_ns": base,
        "sources": [
            {
                "file": source.trace.path.name,
                "format": source.trace.format,
                "name": source.name,
                "metadata": source.trace.header.metadata,
            }
            for source in sources
        ],
    }

    def tail(written: Written) -> dict[str, Any]:
        told = conservation(written, len(notes), [source.ledger for source in sources])
        return {"slime_profiler_conservation": told}

    written = write_output(
        path, folder, sources, [], Canvas(tracks, ids, notes, origin), Frame(head, tail), options
    )
    report = OutputReport.of(
        written,
        path=path,
        rollouts=[],
        lasted_ns={0: last - origin},
        notes=len(notes),
        base_ns=origin,
        base_unix_ns=base,
        sources=[source.ledger for source in sources],
    )
    if options.archive:
        report.note_archive(archive_sources(path, [], sources, {}))
    return report


def _own_words(header: TraceHeader) -> dict[str, Any]:
    """The top-level keys of a trace, less its base."""
    words = {key: value for key, value in header.metadata.items() if key != BASE_KEY}
    if header.identity:
        pairs = [list(pair) for pair in header.clock_pairs]
        words[WINDOW_IDENTITY_KEY] = {**header.identity, "clock_pairs": pairs}
        words[WINDOW_ROLLOUTS_KEY] = header.rollouts
    return words


def _note_missing(ranks: list[RanksReport], at_ns: int, tracks: Tracks) -> Iterator[Note]:
    """An empty process for every missing rank, and, since viewers hide it, a mark that says which."""
    for report in ranks:
        for rank in report.missing:
            name = f"rank {rank}" if report.role == "rank" else f"{report.role} rank {rank}"
            tracks.add_process(DOT.join([name, "missing"]), "missing")
        if report.missing:
            told = format_missing(report.role, report.seen, report.world_size, report.missing, _TOLD)
            yield Note(_FIRST_PID, 0, told, at_ns, at_ns, {"missing": report.missing})


def _reasons(found: Discovery) -> str:
    told = [str(d) for d in found.damage[:_TOLD]]
    told += [f"{path}: {why}" for path, why in found.skipped[:_TOLD]]
    return "".join(f"; {each}" for each in told) or ": no file was found"


def _damage_told(damage: dict[str, Damage]) -> str:
    return "".join(f"; {each}" for each in list(damage.values())[:_TOLD])
