"""Does an Nsight Systems report agree with our records on when things happened?

Both tell the same phases: the report by its own clock, the records by ours. What lies between them is the
error of placing the report on our timeline.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median_low
from typing import Final, NamedTuple

from slime_profiler_plugin.clock import ClockMapping
from slime_profiler_plugin.phases import NVTX_DOMAIN
from slime_profiler_plugin.read import ProcessRecords, Run
from slime_profiler_plugin.read.nsys import NsysPhase, nsys_phases, read_nsys_header

_CLOCK_MARK: Final = re.compile(r"slime\.clock unix_ns=(\d+) mono_ns=(\d+)")


class RecordedPhase(NamedTuple):
    """A phase as a record file tells it. `rollout` is ``None`` for ``initial``, too: it is no number."""

    pid: int
    name: str
    rollout: int | None
    start_unix_ns: int


class ClockCheck(NamedTuple):
    """How far apart report and records are, in ns; positive: the report says later.

    `median_ns` and `max_abs_ns` are of the starts of `matched` phases, ``None`` where there are none.
    `mark_offset_ns` is the median of `marks`: moments at which the recorder wrote its clock into the report.
    """

    matched: int
    median_ns: int | None
    max_abs_ns: int | None
    unmatched_in_report: int
    unmatched_in_records: int
    marks: int
    mark_offset_ns: int | None


def check_clock(report: Iterable[NsysPhase], records: Iterable[RecordedPhase]) -> ClockCheck:
    """Match the phases of a report with those of the records, both of one host.

    Phases match by process id, name and rollout, and in the order of their starts. Where one side has more of
    a kind, because the capture did not last as long as the run, each of the other's is matched with the one
    that begins nearest, once the offset is taken off that the kinds show of which both have as many.

    >>> def seen(name, start): return NsysPhase(9, name, 3, start, start + 5, "slime")
    >>> def told(name, start): return RecordedPhase(9, name, 3, start)
    >>> report = [seen("forward", 1_020), seen("forward", 1_120), seen("optimizer", 1_210)]
    >>> records = [told("forward", s) for s in (900, 1_000, 1_100)] + [told("optimizer", 1_200)]
    >>> check_clock(report, records)[:5]
    (3, 20, 20, 0, 1)

    The optimizer is there once on both sides and 10 ns later in the report. With that, the two forwards are
    nearest to the second and third of the records, 20 ns off; the first was before the capture.
    """
    ours, marks = _sort_out(report)
    theirs: defaultdict[tuple[int, str, int | None], list[int]] = defaultdict(list)
    for phase in records:
        theirs[phase.pid, phase.name, phase.rollout].append(phase.start_unix_ns)
    for starts in (*ours.values(), *theirs.values()):
        starts.sort()
    residuals: list[int] = []
    uneven = []
    for key, starts in ours.items():
        if len(starts) == len(theirs[key]):
            residuals += [seen - told for seen, told in zip(starts, theirs[key], strict=True)]
        else:
            uneven.append(key)
    offset = median_low(residuals or marks or [0])
    for key in uneven:
        residuals += _match_nearest(ours[key], theirs[key], offset)
    return ClockCheck(
        len(residuals),
        median_low(residuals) if residuals else None,
        max(map(abs, residuals), default=None),
        sum(map(len, ours.values())) - len(residuals),
        sum(map(len, theirs.values())) - len(residuals),
        len(marks),
        median_low(marks) if marks else None,
    )


def recorded_phases(run: Run, pids: Collection[int], host: str | None = None) -> Iterator[RecordedPhase]:
    """The phases that processes with those pids on `host` recorded, each by its own wall clock.

    Where `host` is not known, or is none of the run's (containers have names of their own), a pid counts
    that only one host has.
    """
    for records in _on_host(run, host):
        pid = records.process.pid
        if pid not in pids or not records.clock_pairs:
            continue
        clock = ClockMapping(records.clock_pairs)
        for phase in records.phases():
            rollout = phase.rollout if isinstance(phase.rollout, int) else None
            yield RecordedPhase(pid, phase.name, rollout, clock.unix_ns(phase.start_ns))


def check_report(path: Path, run: Run) -> ClockCheck:
    """`check_clock` for the report at `path` and the run. Raises what `read.nsys_phases` raises."""
    report = list(nsys_phases(path, NVTX_DOMAIN))
    host = read_nsys_header(path).identity.get("host")
    return check_clock(report, recorded_phases(run, {phase.pid for phase in report}, host))


def _on_host(run: Run, host: str | None) -> list[ProcessRecords]:
    """The processes of the run that a report of `host` may show."""
    same = [r for r in run.processes if host is not None and _short(r.process.host) == _short(host)]
    if same:
        return same
    hosts: defaultdict[int, set[str]] = defaultdict(set)
    for records in run.processes:
        hosts[records.process.pid].add(records.process.host)
    return [r for r in run.processes if len(hosts[r.process.pid]) == 1]


def _short(host: str) -> str:
    """A host's name without its domain, which some programs leave out."""
    return host.partition(".")[0].lower()


def format_clock_check(check: ClockCheck) -> str:
    """One line for people.

    >>> format_clock_check(ClockCheck(3, 20_400, 61_000, 0, 1, 1, 900))
    'clock check: 3 phases are in report and records, +20.4 µs apart (median), 61.0 µs at most; 1 only in the records; our clock in the report: +0.9 µs (1 mark)'
    """  # noqa: E501  # the line as it is
    if check.median_ns is None or check.max_abs_ns is None:
        said = "clock check: no phase is in report and records"
    else:
        said = (
            f"clock check: {check.matched} phases are in report and records, "
            f"{check.median_ns / 1000:+.1f} µs apart (median), {check.max_abs_ns / 1000:.1f} µs at most"
        )
    if check.unmatched_in_report:
        said += f"; {check.unmatched_in_report} only in the report"
    if check.unmatched_in_records:
        said += f"; {check.unmatched_in_records} only in the records"
    if check.mark_offset_ns is not None:
        plural = "" if check.marks == 1 else "s"
        offset = f"{check.mark_offset_ns / 1000:+.1f} µs ({check.marks} mark{plural})"
        said += f"; our clock in the report: {offset}"
    return said


def _sort_out(
    report: Iterable[NsysPhase],
) -> tuple[dict[tuple[int, str, int | None], list[int]], list[int]]:
    """Starts of our phases by what they are, and the offsets that the clock marks show."""
    phases: defaultdict[tuple[int, str, int | None], list[int]] = defaultdict(list)
    marks = []
    for phase in report:
        if phase.domain != NVTX_DOMAIN:
            continue
        mark = _CLOCK_MARK.fullmatch(phase.name)
        if mark is None:
            phases[phase.pid, phase.name, phase.rollout].append(phase.start_unix_ns)
        else:  # its payload: ns from reading the clock to the mark
            marks.append(phase.start_unix_ns - int(mark[1]) - (phase.rollout or 0))
    return phases, marks


def _match_nearest(seen: Sequence[int], told: Sequence[int], offset: int) -> list[int]:
    """Residuals of sorted starts, each `told` used once at most and in order."""
    fewer, more, sign = (seen, told, 1) if len(seen) <= len(told) else (told, seen, -1)
    residuals = []
    free = 0
    for place, start in enumerate(fewer):
        last = len(more) - (len(fewer) - place)  # the others need one each
        wanted = start - sign * offset
        at = min(max(bisect_left(more, wanted), free), last)
        if at > free and wanted - more[at - 1] < more[at] - wanted:
            at -= 1
        residuals.append(sign * (start - more[at]))
        free = at + 1
    return residuals
