"""A listing as text: a table of runs, or one run in detail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Final, NamedTuple

from slime_profiler_plugin.merge import ENDED_EARLY, ENDINGS

from ._listing import Listing, MergedFile, RolloutSpan, RunSummary

#: More missing ranks, ended processes or damage than these are counted; ``--json`` lists all.
_TOLD_IN_TABLE: Final = 3
_TOLD: Final = 20
_NONE: Final = "-"
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


class TextTable(NamedTuple):
    """Cells to print; `numbers` are the columns that stand to the right."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    numbers: frozenset[str]


def runs_table(listing: Listing) -> TextTable:
    """One row for each run, the newest last."""
    sizes = ("records", "traces", "merged size")
    columns = (
        "run",
        "started (UTC)",
        "attempts",
        "rollouts",
        "ranks seen",
        "not as it should be",
        "merged",
        *sizes,
    )
    rows = [
        (
            run.run_id,
            _time(run.started_unix_ns),
            ", ".join(str(a.attempt) for a in run.attempts) or _NONE,
            format_rollouts(run.rollouts),
            "\n".join(_ranks_seen(run)) or _NONE,
            "\n".join([*_troubles(run, _TOLD_IN_TABLE), *_damage(run)]) or _NONE,
            _merged(run.merged),
            *map(format_bytes, (run.sizes.records, run.sizes.traces, run.sizes.merged)),
        )
        for run in listing.runs
    ]
    return TextTable(columns, rows, frozenset(sizes))


def roles_table(run: RunSummary) -> TextTable:
    """One row for each role of each attempt: ranks seen, processes, how they ended."""
    columns = ("attempt", "rollouts", "role", "ranks seen", "processes", *ENDINGS)
    rows = [
        (
            str(attempt.attempt),
            format_rollouts(attempt.rollouts),
            role.role or "unknown",
            _NONE if role.seen is None else _of(role.seen, role.world_size),
            str(role.processes),
            *(str(role.endings.get(word, 0)) for word in ENDINGS),
        )
        for attempt in run.attempts
        for role in attempt.roles
    ]
    return TextTable(columns, rows, frozenset(("processes", *ENDINGS)))


def listing_lines(listing: Listing) -> Iterator[str]:
    """What stands below the table of runs."""
    if listing.others:
        more = f" and {len(listing.others) - _TOLD} more" if len(listing.others) > _TOLD else ""
        yield f"no runs: {', '.join(listing.others[:_TOLD])}{more}"


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
    yield from (f"  {told}" for told in _bounded(run.damage, _TOLD))
    if run.ignored:
        yield f"  {len(run.ignored)} files are no source: {', '.join(_bounded(run.ignored, _TOLD))}"


def format_rollouts(span: RolloutSpan) -> str:
    """``initial, 0 to 41``; ``-`` where none was seen.

    >>> format_rollouts(RolloutSpan(initial=True, first=0, last=41)), format_rollouts(RolloutSpan())
    ('initial, 0 to 41', '-')
    """
    told = ["initial"] if span.initial else []
    if span.first is not None and span.last is not None:
        told.append(_range(span.first, span.last))
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


def _troubles(run: RunSummary, told: int) -> list[str]:
    """Who is missing or ended early."""
    several = len(run.attempts) > 1
    missing = [
        (f"attempt {attempt.attempt}: " if several else "")
        + f"{role.role}: missing rank {', '.join(_bounded(_stretches(role.missing), told))}"
        for attempt in run.attempts
        for role in attempt.roles
        if role.missing
    ]
    early = [process.name for process in run.processes if process.ending == ENDED_EARLY]
    return [*missing, *(f"{name}: {ENDED_EARLY}" for name in _bounded(early, told))]


def _damage(run: RunSummary) -> Iterator[str]:
    if run.damage:
        yield f"{len(run.damage)} things cannot be read"


def _stretches(numbers: Sequence[int]) -> list[str]:
    """Of numbers in order.

    >>> _stretches([1, 2, 3, 7])
    ['1 to 3', '7']
    """
    breaks = [i for i in range(1, len(numbers)) if numbers[i] != numbers[i - 1] + 1]
    starts, ends = [0, *breaks], [*breaks, len(numbers)]
    return [_range(numbers[a], numbers[b - 1]) for a, b in zip(starts, ends, strict=True) if b > a]


def _ranks_seen(run: RunSummary) -> Iterator[str]:
    several = len(run.attempts) > 1
    for attempt in run.attempts:
        for role in attempt.roles:
            if role.seen is not None:
                told = f"{role.role}: {_of(role.seen, role.world_size)}"
                yield f"attempt {attempt.attempt}: {told}" if several else told


def _bounded(items: Sequence[str], told: int) -> list[str]:
    more = len(items) - told
    return [*items[:told], f"{more} more"] if more > 0 else list(items)


def _of(seen: int, world_size: int | None) -> str:
    return f"{seen} of {'?' if world_size is None else world_size}"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _merged(files: Sequence[MergedFile]) -> str:
    """``initial, 0 to 3, 41``: what is merged, without what each file is called."""
    told: list[str] = []
    stretch: list[int] = []
    for file in files:
        if not isinstance(file.first, int) or not isinstance(file.last, int):
            told.append(str(file.first))
        elif stretch and file.first <= stretch[1] + 1:
            stretch[1] = max(stretch[1], file.last)
            told[-1] = _range(*stretch)
        else:
            stretch = [file.first, file.last]
            told.append(_range(*stretch))
    return ", ".join(told) or _NONE


def _time(unix_ns: int | None) -> str:
    if unix_ns is None:
        return _NONE
    try:
        return datetime.fromtimestamp(unix_ns // 10**9, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a damaged number
        return f"{unix_ns} ns"
