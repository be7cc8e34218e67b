"""Which trace is meant by a file or by the folder of a run."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from slime_profiler_plugin.layout import TRACE_SUFFIXES, RunPaths, parse_merged_name
from slime_profiler_plugin.merge import BROWSER_BYTES, MergeOptions, format_report, merge_run, rollout_order
from slime_profiler_plugin.read import (
    Damage,
    FolderOfRunsError,
    ReadError,
    check_run_folder,
    list_sources,
    read_blocks,
)

#: A file with no more content than this is looked at whole.
_LOOKED_AT: Final = 1 << 16
#: Compressed files are decompressed to see whether they are whole up to this size, bytes.
_UNPACKED: Final = 32 << 20


class OpenError(ValueError):
    """What was named is no trace; the message says why."""


class Chosen(NamedTuple):
    """The trace to show, and whether its run has records that were written after it."""

    trace: Path
    outdated: bool


def choose_trace(target: Path, report: Callable[[str], None]) -> Chosen:
    """The trace that `target` means: itself, or the last of what is merged of a run, by its rollouts.

    Of a run of which nothing is merged, the latest complete rollout is, which `report` is told line by
    line. Raises `OpenError` for what is no trace, `read.ReadError` for a folder that is no run
    (`read.FolderOfRunsError` when it holds some), what `merge_run` raises, and `OSError`.
    """
    if not target.is_dir():
        _check_trace(target)
        if _is_cut(target):
            report(
                f"{target}: its end is missing, and the viewer may refuse it: "
                "`slime-profiler check --fix` mends it"
            )
        return Chosen(target, outdated=False)
    try:
        check_run_folder(target)
    except FolderOfRunsError:
        raise
    except ReadError as error:
        raise OpenError(f"{error}; `slime-profiler merge` makes one trace of a folder of traces") from error
    paths = RunPaths.at(target)
    merged = _last_merged(paths)
    if merged is not None:
        _check_trace(merged)
        written = merged.stat().st_mtime_ns
        return Chosen(merged, any(changed > written for changed in _changes(paths)))
    report(f"{target}: nothing is merged yet; merging the latest complete rollout")
    done = merge_run([target], options=MergeOptions(budget_bytes=BROWSER_BYTES))
    for line in format_report(done):
        report(line)
    return Chosen(Path(done.outputs[-1].path), outdated=False)


def _last_merged(paths: RunPaths) -> Path | None:
    """By the order of rollouts; a range counts by its last, and less than that one alone."""
    if not paths.merged.is_dir():
        return None
    found = [
        ((rollout_order(last), rollout_order(first)), entry)
        for entry in paths.merged.iterdir()
        for first, last in [parse_merged_name(entry.name) or (None, None)]
        if first is not None and last is not None and entry.is_file()
    ]
    return max(found)[1] if found else None


def _changes(paths: RunPaths) -> list[int]:
    """When each record file and window last changed, Unix ns."""
    found = []
    for path in (*list_sources(paths.records, []), *list_sources(paths.traces, [])):
        try:
            about = path.stat()
        except FileNotFoundError:  # it was given another name, or compressed
            continue
        if stat.S_ISREG(about.st_mode):
            found.append(about.st_mtime_ns)
    return found


def _is_cut(path: Path) -> bool:
    """Whether a trace that is an object, or compressed, lacks its end; of a bare list that is allowed.

    A large compressed file is not looked at: to get to its end takes as long as to read it.
    """
    is_packed = path.name.endswith(".gz")
    if is_packed and path.stat().st_size > _UNPACKED:
        return False
    damage: list[Damage] = []
    first = last = b""
    if is_packed:
        for block in read_blocks(path, damage):
            first = first or block.lstrip()
            last = block.rstrip() or last
    else:
        with path.open("rb") as file:
            first = file.read(_LOOKED_AT).lstrip()
            file.seek(max(0, path.stat().st_size - _LOOKED_AT))
            last = file.read().rstrip()
    return bool(damage) or (first.startswith(b"{") and not last.endswith(b"}"))


def _check_trace(path: Path) -> None:
    """That it looks like a trace; the UI will say what it thinks of the rest of it.

    Raises `OpenError`, and `read.ReadError` where it cannot be read.
    """
    if not os.path.lexists(path):
        raise OpenError(f"{path}: no such file or folder")
    if not path.name.endswith(TRACE_SUFFIXES):
        raise OpenError(f"{path}: no trace: its name ends in neither .json nor .json.gz")
    if not path.is_file():
        raise OpenError(f"{path}: not a regular file")
    text = b""
    whole = True
    damage: list[Damage] = []
    for block in read_blocks(path, damage):
        text += block
        if len(text) > _LOOKED_AT:
            whole = False
            break
    text = text.lstrip()
    if not text and whole:
        raise OpenError(f"{path}: no trace: {damage[0].reason if damage else 'it is empty'}")
    if text[:1] not in b"{[":
        raise OpenError(f"{path}: no trace: it does not begin as JSON does")
    if whole and damage:
        raise OpenError(f"{path}: no trace: {damage[0].reason}")
    if whole and text[:1] == b"{" and b'"traceEvents"' not in text:
        raise OpenError(f"{path}: no trace: it has no traceEvents")
    if whole and text[1:].strip() == b"]":
        raise OpenError(f"{path}: no trace: it has no events")
