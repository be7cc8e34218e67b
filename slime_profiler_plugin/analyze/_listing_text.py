"""A listing as text: a table of runs, or one run in detail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Final, NamedTuple

from slime_profiler_plugin.merge import (
    ENDED_EARLY,
    ENDINGS,
    bound_items,
    format_ending,
    format_missing,
    format_of,
    format_range,
)

from ._listing import Listing, MergedFile, RoleSummary, RolloutSpan, RunSummary

#: More missing ranks, ended processes or damage than these are counted; ``--json`` lists all.
_TOLD_IN_TABLE: Final = 3
_TOLD: Final = 20
_NONE: Final = "-"
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


class TextTable(NamedTuple):
    """Cells to print; `numbers` are the columns that stand to the right, `below` lines under each row."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    numbers: frozenset[str]
    below: list[list[str]]


def runs_table(listing: Listing) -> TextTable:
    """One row for each run, the newest last; below it what is not as it should be."""
    columns = ("run", "started (UTC)", "attempts", "rollouts", "ranks seen", "merged", "size")
    rows: list[tuple[str, ...]] = [
        (
            run.run_id,
            _time(run.started_unix_ns)[: len("2026-01-01 00:00")],
            str(len(run.attempts)),
            _numbered_rollouts(run.rollouts),
            _ranks_seen(run),
            str(len(run.merged)),
            format_bytes(run.sizes.records + run.sizes.traces + run.sizes.merged),
        )
        for run in listing.runs
    ]
    below = [[*_troubles(run, _TOLD_IN_TABLE), *_damage(run)] for run in listing.runs]
    return TextTable(columns, rows, frozenset(("attempts", "merged", "size")), below)


def roles_table(run: RunSummary) -> TextTable:
    """One row for each role of each attempt: ranks seen, processes, how those ended."""
    roles = [(attempt, role) for attempt in run.attempts for role in attempt.roles]
    endings = [word for word in ENDINGS if any(word in role.endings for _, role in roles)]
    rows = [
        (
            str(attempt.attempt),
            format_rollouts(attempt.rollouts),
            role.role or "unknown",
            _NONE if role.seen is None else format_of(role.seen, role.world_size),
            str(role.processes),
            *(str(role.endings.get(word, 0)) for word in endings),
        )
        for attempt, role in roles
    ]
    columns = ("attempt", "rollouts", "role", "ranks seen", "processes", *endings)
    return TextTable(columns, rows, frozenset(("processes", *endings)), [[] for _ in rows])


def listing_lines(listing: Listing) -> Iterator[str]:
    """What stands below the table of runs."""
    for told in bound_items(listing.damage, _TOLD):
        yield f"cannot be read: {told}"
    if listing.others:
        yield f"no runs: {', '.join(bound_items(listing.others, _TOLD))}"


def run_lines(run: RunSummary) -> Iterator[str]:
    """What stands above the table of one run's roles."""
    some = "attempt" if len(run.attempts) == 1 else "attempts"
    yield f"run {run.run_id}, {some} {', '.join(str(a.attempt) for a in run.attempts) or _NONE}"
    yield f"  started {_time(run.started_unix_ns)} UTC, last sign of life {_time(run.last_unix_ns)} UTC"
    yield f"  rollouts {format_rollouts(run.rollouts)}; merged {_merged(run.merged)}"
    sizes = run.sizes
    yield (
        f"  records {format_bytes(sizes.records)}, traces {format_bytes(sizes.traces)}, "
        f"merged {format_bytes(sizes.merged)}"
    )
    for trouble in _troubles(run, _TOLD):
        yield f"  {trouble}"
    yield from (f"  {told}" for told in bound_items(run.damage, _TOLD))
    if run.ignored:
        yield f"  no source: {', '.join(bound_items(run.ignored, _TOLD))}"


def format_rollouts(span: RolloutSpan) -> str:
    """``initial, 0 to 41``; ``-`` where none was seen.

    >>> format_rollouts(RolloutSpan(initial=True, first=0, last=41)), format_rollouts(RolloutSpan())
    ('initial, 0 to 41', '-')
    """
    told = ["initial"] if span.initial else []
    if span.first is not None and span.last is not None:
        told.append(format_range(span.first, span.last))
    return ", ".join([*told, *span.names]) or _NONE


def format_bytes(size: int) -> str:
    """With three digits or so, in units of 1000.

    >>> format_bytes(0), format_bytes(999), format_bytes(1234), format_bytes(64_000_000), format_bytes(10**16)
    ('0 B', '999 B', '1.2 kB', '64 MB', '10000 TB')
    """
    value = float(size)
    for unit in _UNITS:
        if value < 999.5 or unit == _UNITS[-1]:
            break
        value /= 1000
    return f"{value:.1f} {unit}" if unit != "B" and value < 9.95 else f"{value:.0f} {unit}"


def _numbered_rollouts(span: RolloutSpan) -> str:
    """Without ``initial``, which nearly every run has, and one name at most; all in few columns."""
    told = [] if span.first is None or span.last is None else [format_range(span.first, span.last)]
    names = bound_items([*(["initial"] if span.initial and not told else []), *span.names], 1)
    return ", ".join([*told, *names]) or _NONE


def _troubles(run: RunSummary, told: int) -> list[str]:
    """Who is missing or ended early."""
    several = len(run.attempts) > 1
    missing = [
        (f"attempt {attempt.attempt}: " if several else "") + trouble
        for attempt in run.attempts
        for trouble in _missing(attempt.roles, told)
    ]
    early = [
        f"{process.name}: {format_ending(process.ending, process.replaced_by)}"
        for process in run.processes
        if process.ending == ENDED_EARLY
    ]
    return [*missing, *bound_items(early, told)]


def _missing(roles: Sequence[RoleSummary], told: int) -> Iterator[str]:
    if not roles:
        yield "nothing recorded"
    for role in roles:
        if role.missing:
            yield format_missing(str(role.role), role.seen or 0, role.world_size, role.missing, told)


def _damage(run: RunSummary) -> Iterator[str]:
    if run.damage:
        yield f"cannot be read: {len(run.damage)} (slime-profiler ls RUN tells what)"


def _ranks_seen(run: RunSummary) -> str:
    """Of all roles together, in the last attempt in which any was seen."""
    for attempt in reversed(run.attempts):
        sizes = [role.world_size for role in attempt.roles if role.seen is not None]
        if sizes:
            known = [size for size in sizes if size is not None]
            seen = sum(role.seen or 0 for role in attempt.roles)
            return format_of(seen, sum(known) if len(known) == len(sizes) else None)
    return _NONE


def _merged(files: Sequence[MergedFile]) -> str:
    """``initial, 0 to 3, 41``: what is merged, without what each file is called."""
    told: list[str] = []
    stretch: list[int] = []
    for file in files:
        if not isinstance(file.first, int) or not isinstance(file.last, int):
            told.append(str(file.first))
        elif stretch and file.first <= stretch[1] + 1:
            stretch[1] = max(stretch[1], file.last)
            told[-1] = format_range(*stretch)
        else:
            stretch = [file.first, file.last]
            told.append(format_range(*stretch))
    return ", ".join(told) or _NONE


def _time(unix_ns: int | None) -> str:
    if unix_ns is None:
        return _NONE
    try:
        return datetime.fromtimestamp(unix_ns // 10**9, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a damaged number
        return f"{unix_ns} ns"
