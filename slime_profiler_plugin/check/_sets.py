"""SP5xx: several files that are looked at together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from slime_profiler_plugin.clock import ns_to_decimal_us
from slime_profiler_plugin.read import MOST_RANKS, plain_id

from ._events import NO_ID, spell
from ._rules import Found, set_rule, some
from ._survey import FileSurvey

_MOST_SHOWN: Final = 10


@set_rule("SP501", "Rank is unknown", "warning")
def unknown_rank(surveys: list[FileSurvey]) -> Iterator[Found]:
    """Neither the file nor its name says which rank it is of."""
    of_ranks = _of_ranks(surveys)
    unknown = [survey for survey in of_ranks if _rank(survey) is None and not survey.is_ours]
    if unknown and len(of_ranks) > 1:
        yield _about(unknown, some(len(unknown), "file", "does not say its rank", "do not say their rank"))


@set_rule("SP502", "Rank is missing", "warning")
def missing_rank(surveys: list[FileSurvey]) -> Iterator[Found]:
    """Fewer ranks are there than the files say there were."""
    for (role, size), members in _by_world(surveys).items():
        seen = {rank for survey in members if (rank := _rank(survey)) is not None}
        lacking = sorted(set(range(size)) - seen) if size <= MOST_RANKS and len(members) > 1 else []
        if lacking:
            named = ", ".join(map(str, lacking[:_MOST_SHOWN])) + (", …" if len(lacking) > _MOST_SHOWN else "")
            whose = f" of {role}" if role else ""
            yield _about(
                members, f"{len(seen)} of {size} ranks{whose} are there; missing: {named}", len(lacking)
            )


@set_rule("SP503", "Two files are of one rank", "warning")
def duplicate_rank(surveys: list[FileSurvey]) -> Iterator[Found]:
    """Two steps, two stages, or ranks that all say 0."""
    ranks: dict[Hashable, list[FileSurvey]] = defaultdict(list)
    for survey in _of_ranks(surveys):
        if _rank(survey) is not None and survey.trace is not None:
            owner = survey.trace.owner
            parallel = tuple(sorted(owner.ranks.items()))
            ranks[owner.role, owner.rank, parallel, owner.profile_id, owner.stage].append(survey)
    for members in ranks.values():
        if len(members) > 1:
            yield _about(members, f"{len(members)} files are of rank {_rank(members[0])}")


@set_rule("SP504", "Process id is that of several files", "warning", "merge")
def same_pid(surveys: list[FileSurvey]) -> Iterator[Found]:
    """Put together, the files share processes."""
    yield from _shared(
        surveys,
        "process",
        lambda survey: {plain_id(pid) for pid, _ in survey.events.tracks},
        lambda pid: f"pid {spell(pid)}",
    )


@set_rule("SP505", "Thread is that of several files", "warning", "merge")
def same_track(surveys: list[FileSurvey]) -> Iterator[Found]:
    """Put together, slices of several files stand, and cross, in one row."""
    yield from _shared(
        surveys,
        "thread",
        lambda survey: {(plain_id(pid), plain_id(tid)) for pid, tid in survey.events.tracks},
        lambda track: f"pid {spell(track[0])} tid {spell(track[1])}",
    )


@set_rule("SP506", "Flow id is that of several files", "warning", "merge")
def same_flow(surveys: list[FileSurvey]) -> Iterator[Found]:
    """Put together, arrows lead from one file to another."""
    yield from _shared_keys(surveys, "flow id", lambda survey: _keys(survey.events.flows))


@set_rule("SP507", "Async id is that of several files", "warning", "merge")
def same_async(surveys: list[FileSurvey]) -> Iterator[Found]:
    """Put together, async slices of several files nest in each other."""
    yield from _shared_keys(surveys, "async id", lambda survey: _keys(survey.events.asyncs))


@set_rule("SP508", "Correlation is that of several files", "warning", "merge")
def same_correlation(surveys: list[FileSurvey]) -> Iterator[Found]:
    """Put together, tools that join by it give one launch the kernels of all ranks."""
    yield from _shared_keys(surveys, "correlation", lambda survey: survey.events.correlation)


@set_rule("SP509", "Base times differ", "warning", "merge")
def different_bases(surveys: list[FileSurvey]) -> Iterator[Found]:
    """Equal times are not equal: the base of torch.profiler steps four times a year."""
    bases: dict[int, list[FileSurvey]] = defaultdict(list)
    for survey in surveys:
        if survey.base_ns is not None:
            bases[survey.base_ns].append(survey)
    if len(bases) > 1:
        members = [survey for members in bases.values() for survey in members]
        told = f"{len(bases)} different base times, up to {_format_apart(max(bases) - min(bases))} apart"
        if any(survey.is_ours for survey in members):
            told += "; a mended or merged file counts from its own first event"
        yield _about(members, told, len(bases))


@set_rule("SP510", "Files are on different clocks", "warning", "merge")
def different_clocks(surveys: list[FileSurvey]) -> Iterator[Found]:
    """Unix times, times relative to a base, or times of which nothing is known, beside each other."""
    clocks: dict[str, list[FileSurvey]] = defaultdict(list)
    for survey in surveys:
        if survey.clock != "none":
            clocks[survey.clock].append(survey)
    if len(clocks) > 1:
        told = ", ".join(f"{_CLOCKS[clock]}: {len(clocks[clock])}" for clock in sorted(clocks))
        yield _about(
            [survey for members in clocks.values() for survey in members],
            f"files by clock: {told}",
            len(clocks),
        )


def _format_apart(ns: int) -> str:
    """How far apart in time, in words.

    >>> _format_apart(7_889_238 * 10**9), _format_apart(90_400_000_000), _format_apart(1_500_250)
    ('91.3 days', '90 s', '1500.250 us')
    """
    if ns >= _DAY_NS:
        return f"{ns / _DAY_NS:.1f} days"
    return f"{ns / 1e9:.0f} s" if ns >= _SECOND_NS else f"{ns_to_decimal_us(ns)} us"


_SECOND_NS: Final = 10**9
_DAY_NS: Final = 24 * 3600 * _SECOND_NS
_CLOCKS: Final = {"based": "relative to a base", "absolute": "Unix times", "unknown": "unknown"}


def _of_ranks(surveys: list[FileSurvey]) -> list[FileSurvey]:
    """The files that one rank writes one of."""
    return [survey for survey in surveys if survey.is_of_torch]


def _rank(survey: FileSurvey) -> int | None:
    return None if survey.trace is None else survey.trace.owner.rank


def _by_world(surveys: list[FileSurvey]) -> dict[tuple[str, int], list[FileSurvey]]:
    """Files that say how many ranks there were, by role and that number."""
    worlds: dict[tuple[str, int], list[FileSurvey]] = defaultdict(list)
    for survey in _of_ranks(surveys):
        assert survey.trace is not None
        owner = survey.trace.owner
        if owner.rank is not None and owner.world_size is not None:
            worlds[owner.role or "", owner.world_size].append(survey)
    return worlds


def _about(surveys: list[FileSurvey], message: str, count: int | None = None) -> Found:
    files = tuple(str(survey.path) for survey in surveys)
    return Found(len(files) if count is None else count, message, files[0], files)


def _shared(
    surveys: list[FileSurvey],
    noun: str,
    members: Callable[[FileSurvey], set[Any]],
    describe: Callable[[Any], str],
) -> Iterator[Found]:
    owners: dict[Any, list[FileSurvey]] = defaultdict(list)
    for survey in surveys:
        for key in members(survey):
            owners[key].append(survey)
    shared = {key: held for key, held in owners.items() if len(held) > 1}
    if shared:
        first = min(shared, key=str)
        files = dict.fromkeys(str(survey.path) for held in shared.values() for survey in held)
        plural = noun + ("es" if noun.endswith("s") else "s")
        message = (
            f"1 {noun} is in several files"
            if len(shared) == 1
            else f"{len(shared)} {plural} are in several files"
        )
        yield Found(
            len(shared), message, f"{describe(first)} in {len(shared[first])} files", tuple(sorted(files))
        )


def _shared_keys(
    surveys: list[FileSurvey], noun: str, keys: Callable[[FileSurvey], NDArray[Any]]
) -> Iterator[Found]:
    each = [np.unique(keys(survey)) for survey in surveys]
    values, counts = np.unique(np.concatenate([*each, np.empty(0, np.int64)]), return_counts=True)
    shared = values[counts > 1]
    if len(shared):
        held = [survey for survey, own in zip(surveys, each, strict=True) if np.isin(own, shared).any()]
        message = some(len(shared), noun, "is", "are") + f" in several of {len(held)} files"
        yield Found(
            len(shared), message, str(held[0].path), tuple(sorted(str(survey.path) for survey in held))
        )


def _keys(table: Any) -> NDArray[Any]:
    keys: NDArray[Any] = table.key[table.problem != NO_ID]
    return keys
