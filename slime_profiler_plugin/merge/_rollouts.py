"""Which rollouts were asked for, and what their files are called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from slime_profiler_plugin.layout import (
    ATTEMPT_FILE,
    TRACE_SUFFIXES,
    RunPaths,
    file_safe,
    range_name,
    refuse_as_folder,
    rollout_name,
)
from slime_profiler_plugin.read import Run
from slime_profiler_plugin.schema import INITIAL

from ._selection import find_complete, rollout_order

#: ``latest``: the latest complete one; ``all``: one file for each; a rollout; or a half-open range.
RolloutChoice: TypeAlias = "Literal['latest', 'all'] | int | str | tuple[int, int]"

#: No more digits than a file's name and Python's own conversion take.
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
#: Reasons why nothing could be used of a run that are told; the rest is counted.
_REASONS_TOLD: Final = 3


class MergeError(ValueError):
    """Nothing could be written; the message says why."""


class MergeUsageError(ValueError):
    """What was asked for does not make sense; the message says why."""


class Wanted:
    """One output: the rollouts in it, and where it goes."""

    def __init__(self, rollouts: list[int | str], path: Path) -> None:
        self.rollouts = rollouts
        self.path = path


def parse_choice(text: str) -> RolloutChoice:
    """A choice as it is written on a command line.

    >>> parse_choice("3:5"), parse_choice("3"), parse_choice("all")
    ((3, 5), 3, 'all')

    Raises `MergeUsageError`.
    """
    if text in ("latest", "all", INITIAL):
        return text
    first, colon, last = text.partition(":")
    if _NUMBER.fullmatch(first) and not colon:
        return int(first)
    if _NUMBER.fullmatch(first) and _NUMBER.fullmatch(last) and int(first) < int(last):
        return int(first), int(last)
    raise MergeUsageError(f"--rollout {text!r}: allowed are a number, a:b with a < b, {INITIAL}, latest, all")


def plan_outputs(
    run: Run,
    endings: Mapping[tuple[str, str], str],
    choice: RolloutChoice,
    out: Path | None,
    warnings: list[str],
) -> list[Wanted]:
    """The files to write; `endings` as `find_endings` gives them.

    Raises `MergeError` when the run has none of the rollouts asked for, and `MergeUsageError` when
    a file would lie among the run's own.
    """
    known = known_rollouts(run)
    if not known:
        raise MergeError(f"run {run.run_id}: no record names a rollout{_reasons(run)}")
    if choice == "all":
        groups: list[tuple[str, list[int | str]]] = [(_stem(r), [r]) for r in known]
    elif choice == "latest":
        groups = [_latest(run, endings, known, warnings)]
    elif isinstance(choice, tuple):
        inside: list[int | str] = [r for r in known if isinstance(r, int) and choice[0] <= r < choice[1]]
        groups = [(_range_stem(inside), inside)] if inside else []
        if inside and len(inside) < choice[1] - choice[0]:
            warnings.append(f"of rollouts {_format(choice)}, the run has {_list(inside)}")
    else:
        groups = [(_stem(choice), [choice])] if choice in known else []
    if not groups:
        raise MergeError(f"run {run.run_id} has no rollout {_format(choice)}; it has {_list(known)}")
    names = _tell_apart([name for name, _ in groups])
    wanted = [
        Wanted(rollouts, _path(run, name, out, len(groups)))
        for name, (_, rollouts) in zip(names, groups, strict=True)
    ]
    for each in wanted:
        _refuse_source(run, each.path)
    return wanted


def known_rollouts(run: Run) -> list[int | str]:
    """Every rollout that a record or a window names, in order."""
    named: set[int | str] = set(run.rollouts())
    for window in run.windows:
        named.update(window.covers)
    return sorted(named, key=rollout_order)


def _latest(
    run: Run, endings: Mapping[tuple[str, str], str], known: list[int | str], warnings: list[str]
) -> tuple[str, list[int | str]]:
    complete = find_complete(run, endings)
    attempt = max((records.process.attempt for records in run.processes), default=0)
    last = {r for p in run.processes if p.process.attempt == attempt for r in p.extents if r is not None}
    latest = max(last or known, key=rollout_order)
    if complete is None:
        warnings.append(f"no rollout is complete; this is the latest, {_format(latest)}")
        return _stem(latest), [latest]
    if complete != latest:
        warnings.append(
            f"rollout {_format(latest)} is not complete: --rollout {latest} merges it all the same"
        )
    return _stem(complete), [complete]


def _tell_apart(names: list[str]) -> list[str]:
    """Different names, where two that users gave look alike as names of files.

    >>> _tell_apart(["eval_1", "eval_1", "eval_2"])
    ['eval_1', 'eval_1-2', 'eval_2']
    """
    told: list[str] = []
    for name in names:
        number, unique = 1, name
        while unique in told:
            number += 1
            unique = f"{name}-{number}"
        told.append(unique)
    return told


def _path(run: Run, name: str, out: Path | None, outputs: int) -> Path:
    if out is None:
        return RunPaths.at(run.folders[0]).merged_file(name)
    if not out.name.endswith(TRACE_SUFFIXES):
        why = refuse_as_folder(out)
        if why is not None:
            raise MergeUsageError(f"-o {out}: {why}")
        return out / f"{name}.trace.json.gz"
    if outputs > 1:
        raise MergeUsageError(
            f"-o {out}: {outputs} rollouts do not fit one file; name a folder or a range a:b"
        )
    return out


def _refuse_source(run: Run, path: Path) -> None:
    """No merged file may take the place of what it is made from."""
    target = path.resolve()
    for paths in map(RunPaths.at, run.folders):
        among = any(target.is_relative_to(folder.resolve()) for folder in (paths.records, paths.traces))
        beside = target.parent == paths.root.resolve() and (
            target.name == paths.run_file.name or ATTEMPT_FILE.fullmatch(target.name)
        )
        if among or beside:
            raise MergeUsageError(f"-o: {path} would lie among the run's own files")


def _reasons(run: Run) -> str:
    told = "".join(f"; {damage}" for damage in run.damage[:_REASONS_TOLD])
    more = len(run.damage) - _REASONS_TOLD
    return f"{told}; and {more} more" if more > 0 else told


def _range_stem(rollouts: list[int | str]) -> str:
    """After what is in the file, not after what was asked for."""
    first, last = rollouts[0], rollouts[-1]
    if isinstance(first, int) and isinstance(last, int) and first != last:
        return range_name(first, last)
    return _stem(first)


def _stem(rollout: int | str) -> str:
    if isinstance(rollout, int) or rollout == INITIAL:
        return rollout_name(rollout)
    return file_safe(rollout)


def _format(choice: RolloutChoice) -> str:
    return f"{choice[0]}:{choice[1]}" if isinstance(choice, tuple) else str(choice)


def _list(known: list[int | str]) -> str:
    numbers = [r for r in known if isinstance(r, int)]
    names = [str(r) for r in known if not isinstance(r, int)]
    if not numbers:
        return ", ".join(names)
    whole = len(numbers) == numbers[-1] - numbers[0] + 1 and len(numbers) > 2
    told = [f"{numbers[0]} to {numbers[-1]}"] if whole else [str(r) for r in numbers]
    return ", ".join([*names, *told])
