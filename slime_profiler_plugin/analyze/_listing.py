"""What runs there are, who was seen in them, and what they hold: from a quick look at each."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from slime_profiler_plugin.layout import RunPaths, parse_merged_name, parse_rollout_name
from slime_profiler_plugin.merge import (
    ENDINGS,
    find_endings,
    find_replacements,
    name_processes,
    presentation_order,
    rollout_order,
)
from slime_profiler_plugin.read import (
    Damage,
    Glance,
    ReadError,
    attempt_numbers,
    count_ranks,
    find_runs,
    glance_processes,
    is_run_folder,
    list_entries,
    read_run_file,
    read_run_id,
)
from slime_profiler_plugin.schema import INITIAL

from ._sizes import total_bytes


class RolloutSpan(msgspec.Struct, kw_only=True):
    """The rollouts that were seen: whether ``initial``, the least and the greatest number, other names.

    Which numbers lie between is not known.
    """

    initial: bool = False
    first: int | None = None
    last: int | None = None
    names: list[str] = []


class RoleSummary(msgspec.Struct, kw_only=True):
    """The processes of one role in one attempt; ``None``: those that did not say theirs.

    `seen` counts the ranks of which there is a process, `world_size` is how many they say there are,
    `missing` are the others. All three are empty for a role that does not number its processes. `endings`
    counts the processes by how they ended, in the words of `merge`.
    """

    role: str | None
    processes: int
    seen: int | None
    world_size: int | None
    missing: list[int]
    endings: dict[str, int]


class ProcessSummary(msgspec.Struct, kw_only=True):
    """One process; `bytes` is what its record files take on disk. Times are Unix ns of its own wall clock.

    `ending` and `replaced_by` are those of `merge`.
    """

    name: str
    attempt: int
    role: str | None
    rank: int | None
    host: str
    pid: int
    incarnation: str
    ending: str
    replaced_by: int | None
    started_unix_ns: int
    last_unix_ns: int
    bytes: int
    files: int


class AttemptSummary(msgspec.Struct, kw_only=True):
    """One start of the run. `started_unix_ns` is that of its first process, ``None`` where it has none."""

    attempt: int
    started_unix_ns: int | None
    rollouts: RolloutSpan
    roles: list[RoleSummary]


class MergedFile(msgspec.Struct, kw_only=True):
    """A merged timeline: its name, the first and the last rollout in it, its size."""

    name: str
    first: int | str
    last: int | str
    bytes: int


class Sizes(msgspec.Struct, kw_only=True):
    """Bytes on disk of a run's record files, profiler windows and merged timelines."""

    records: int
    traces: int
    merged: int


class RunSummary(msgspec.Struct, kw_only=True):
    """One run. `started_unix_ns` is when it was created, `last_unix_ns` the last sign of life of any process.

    `damage` is what could not be read of what was looked at, `ignored` the files that are no records.
    """

    run_id: str
    folder: str
    started_unix_ns: int | None
    last_unix_ns: int | None
    rollouts: RolloutSpan
    attempts: list[AttemptSummary]
    processes: list[ProcessSummary]
    merged: list[MergedFile]
    sizes: Sizes
    damage: list[str]
    ignored: list[str]


class Listing(msgspec.Struct, kw_only=True):
    """The runs in `folder`, the newest last; `is_run`: it is itself the one that is listed.

    `others` are the entries of the folder that are no runs, `damage` those of which that cannot be known
    or that could not be read.
    """

    folder: str
    is_run: bool
    runs: list[RunSummary]
    others: list[str]
    damage: list[str]

    def to_builtins(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


def list_runs(folder: Path) -> Listing:
    """The runs in `folder`, or the run that it is.

    Reads the beginning and the end of what each process wrote (`read.glance_processes`), not the
    middle. Raises `ReadError` when there is no run, and `OSError`.
    """
    if not folder.is_dir():
        raise ReadError(f"{folder}: " + ("a file, not a folder" if folder.exists() else "no such folder"))
    if is_run_folder(folder):
        return Listing(folder=str(folder), is_run=True, runs=[_summarize(folder)], others=[], damage=[])
    damage: list[Damage] = []
    found = []
    others = {entry.name for entry in folder.iterdir()}
    for run in find_runs(folder, damage):
        others.discard(run.name)
        try:
            found.append(_summarize(run))
        except OSError as error:  # that of one run must not hide the others
            damage.append(Damage(str(run), "refused", str(error)))
    told = [str(each) for each in damage]
    if not found:
        raise ReadError(f"{folder}: no run in it" + "".join(f"; {each}" for each in told))
    return Listing(
        folder=str(folder),
        is_run=False,
        runs=sorted(found, key=lambda run: (run.started_unix_ns or 0, run.run_id)),
        others=sorted(others - {Path(each.file).name for each in damage}),
        damage=told,
    )


def _summarize(folder: Path) -> RunSummary:
    paths = RunPaths.at(folder)
    damage: list[Damage] = []
    ignored: list[Path] = []
    seen = glance_processes(folder, damage, ignored)
    endings = find_endings(seen)
    replaced = find_replacements(seen, endings)
    attempts = sorted({*attempt_numbers([folder], damage), *(g.process.attempt for g in seen)})
    windows = (parse_rollout_name(path.name) for path in list_entries(paths.traces, damage))
    rollouts = {*(r for g in seen for r in g.rollouts), *(r for r in windows if r is not None)}
    names = name_processes(seen, len(attempts) > 1)
    created = read_run_file(paths.run_file, []).get("created_unix_ns")
    starts = [g.process.start_unix_ns for g in seen]
    merged = _merged(list_entries(paths.merged, damage))
    sizes = Sizes(
        records=total_bytes(paths.records, damage),
        traces=total_bytes(paths.traces, damage),
        merged=total_bytes(paths.merged, damage),
    )
    return RunSummary(
        run_id=read_run_id(folder, []),
        folder=str(folder),
        started_unix_ns=created if isinstance(created, int) else min(starts, default=None),
        last_unix_ns=max((g.last_unix_ns for g in seen), default=None),
        rollouts=_span(rollouts),
        attempts=[
            _summarize_attempt(number, [g for g in seen if g.process.attempt == number], endings)
            for number in attempts
        ],
        processes=[
            _summarize_process(g, names[g.key], endings[g.key], replaced.get(g.key))
            for g in sorted(seen, key=lambda g: presentation_order(g.process))
        ],
        merged=merged,
        sizes=sizes,
        # Who adds up the sizes finds what the reading found before.
        damage=list(dict.fromkeys(map(str, damage))),
        ignored=[str(path) for path in ignored],
    )


def _summarize_attempt(
    number: int, members: Sequence[Glance], endings: dict[tuple[str, str], str]
) -> AttemptSummary:
    ranks = {found.role: found for found in count_ranks(g.process for g in members)}
    roles = []
    ordered = sorted(members, key=lambda g: presentation_order(g.process))
    for role in dict.fromkeys(g.process.role for g in ordered):
        own = [g for g in members if g.process.role == role]
        counted = ranks.get(role) if role is not None else None
        ended = Counter(endings[g.key] for g in own)
        roles.append(
            RoleSummary(
                role=role,
                processes=len(own),
                seen=len(counted.seen) if counted else None,
                world_size=counted.world_size if counted else None,
                missing=counted.missing if counted else [],
                endings={word: ended[word] for word in ENDINGS if ended[word]},
            )
        )
    return AttemptSummary(
        attempt=number,
        started_unix_ns=min((g.process.start_unix_ns for g in members), default=None),
        rollouts=_span({r for g in members for r in g.rollouts}),
        roles=roles,
    )


def _summarize_process(glance: Glance, name: str, ending: str, replaced_by: int | None) -> ProcessSummary:
    process = glance.process
    return ProcessSummary(
        name=name,
        attempt=process.attempt,
        role=process.role,
        rank=process.rank,
        host=process.host,
        pid=process.pid,
        incarnation=process.incarnation,
        ending=ending,
        replaced_by=replaced_by,
        started_unix_ns=process.start_unix_ns,
        last_unix_ns=glance.last_unix_ns,
        bytes=glance.bytes,
        files=len(glance.files),
    )


def _span(rollouts: Iterable[int | str]) -> RolloutSpan:
    ordered = sorted(rollouts, key=rollout_order)
    numbers = [r for r in ordered if isinstance(r, int)]
    return RolloutSpan(
        initial=INITIAL in ordered,
        first=min(numbers, default=None),
        last=max(numbers, default=None),
        names=[r for r in ordered if isinstance(r, str) and r != INITIAL],
    )


def _merged(paths: Iterable[Path]) -> list[MergedFile]:
    found = []
    for path in paths:
        covers = parse_merged_name(path.name)
        if covers is None:
            continue
        with suppress(OSError):  # `total_bytes` tells it
            about = path.stat()
            if stat.S_ISREG(about.st_mode):
                first, last = covers
                found.append(MergedFile(name=path.name, first=first, last=last, bytes=about.st_size))
    return sorted(found, key=lambda file: (rollout_order(file.first), rollout_order(file.last)))
