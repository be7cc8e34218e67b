"""Every source among files and folders: what each is, and why the rest is none."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from slime_profiler_plugin import layout

from ._damage import Damage, ReadError, TraceRefusedError
from ._entries import has_mode, list_entries, list_sources, refuse
from .traces import TraceFile, mended_from, open_trace

_REPORT = ".nsys-rep"
#: A file of such a name should be a trace.
_TRACE_NAMES = (".trace.json", ".trace.json.gz", _REPORT)
_UNFINISHED = ".tmp"


class Discovery(NamedTuple):
    """What was found: `traces` of every format, `runs` (run folders of ours), both by path.

    `skipped` are files that are no source, with the reason; `damage` what was named or should be a source and
    cannot be read.
    """

    traces: list[TraceFile]
    runs: list[Path]
    skipped: list[tuple[Path, str]]
    damage: list[Damage]


def discover(paths: Iterable[Path | str]) -> Discovery:
    """Every source named in `paths` or in a folder among them, each once, in sorted order.

    Of several names of one file (links) one that was named is used before others, and a link after what it
    leads to.

    A file that was named and is no trace is damage (``refused``); one that was only found is skipped, unless
    its name says that it should be a trace. A run folder is not looked into.
    """
    found = _Search().run(map(Path, paths))
    _skip_mended(found)
    found.traces.sort(key=lambda trace: str(trace.path))
    found.runs.sort()
    found.skipped.sort()
    found.damage.sort(key=str)
    return found


def _skip_mended(found: Discovery) -> None:
    """Leave out mended copies of what is there itself: it would be there twice."""
    mended = {trace.path: original for trace in found.traces if (original := mended_from(trace)) is not None}
    names = {trace.path.name for trace in found.traces if trace.path not in mended}
    for path, original in mended.items():
        if original in names:
            found.skipped.append((path, f"a mended copy of {original}, which is here itself"))
    skipped = {path for path, original in mended.items() if original in names}
    found.traces[:] = [trace for trace in found.traces if trace.path not in skipped]


class _File(NamedTuple):
    """A file under one of its names; the least of them is used: one that was named, one that is no link."""

    is_found_only: bool
    is_link: bool
    path: Path


class _Search:
    def __init__(self) -> None:
        self.found = Discovery([], [], [], [])
        #: Files and folders seen, by device and inode: links may lead back.
        self._files: dict[tuple[int, int], _File] = {}
        self._folders: set[tuple[int, int]] = set()
        #: Folders to look into, and links to folders, which come after all others.
        self._waiting: deque[tuple[Path, os.stat_result]] = deque()
        self._links: deque[tuple[Path, os.stat_result]] = deque()

    def run(self, paths: Iterable[Path]) -> Discovery:
        for path in sorted(paths):
            self._take_named(path)
        while waiting := self._waiting or self._links:
            self._take_folder(*waiting.popleft())
        for file in self._files.values():
            self._open(file)
        return self.found

    def _take_named(self, path: Path) -> None:
        try:
            status = path.stat()
        except OSError as error:
            self.found.damage.append(refuse(path, error))
            return
        if stat.S_ISDIR(status.st_mode):
            self._note_folder(path, status)
        elif stat.S_ISREG(status.st_mode):
            self._note_file(path, status, is_named=True)
        else:
            self.found.damage.append(Damage(str(path), "refused", "neither a file nor a folder"))

    def _take_folder(self, folder: Path, status: os.stat_result) -> None:
        key = status.st_dev, status.st_ino
        if key in self._folders:
            return
        self._folders.add(key)
        if _is_run(folder):
            self.found.runs.append(folder)
            return
        for entry in list_entries(folder, self.found.damage):
            self._take_entry(entry)

    def _take_entry(self, entry: Path) -> None:
        try:
            status = entry.stat()
        except FileNotFoundError:
            self.found.skipped.append((entry, "a link to nothing"))
            return
        except OSError as error:
            self.found.damage.append(refuse(entry, error))
            return
        if stat.S_ISDIR(status.st_mode):
            if entry.name.startswith(".") and entry.suffix == _UNFINISHED:  # of a merge that was killed
                self.found.skipped.append((entry, "a folder that was not finished"))
            else:
                self._note_folder(entry, status)
        elif not stat.S_ISREG(status.st_mode):
            self.found.skipped.append((entry, "neither a file nor a folder"))
        elif entry.suffix == _UNFINISHED:
            self.found.skipped.append((entry, "a file that was not finished"))
        elif entry.suffix == _REPORT and entry.with_suffix(".sqlite").exists():
            self.found.skipped.append((entry, f"exported already: {entry.stem}.sqlite"))
        else:
            self._note_file(entry, status, is_named=False)

    def _note_folder(self, path: Path, status: os.stat_result) -> None:
        (self._links if path.is_symlink() else self._waiting).append((path, status))

    def _note_file(self, path: Path, status: os.stat_result, *, is_named: bool) -> None:
        key = status.st_dev, status.st_ino
        file = _File(not is_named, path.is_symlink(), path)
        self._files[key] = min(file, self._files.get(key, file))

    def _open(self, file: _File) -> None:
        path = file.path
        try:
            self.found.traces.append(open_trace(path))
        except ReadError as error:
            reason = str(error).removeprefix(f"{path}: ")
            is_none = isinstance(error, TraceRefusedError) and not _should_be_trace(path, error)
            if is_none and file.is_found_only:
                self.found.skipped.append((path, reason))
            else:
                self.found.damage.append(Damage(str(path), "refused", reason))


def _should_be_trace(path: Path, error: TraceRefusedError) -> bool:
    return path.name.endswith(_TRACE_NAMES) and not error.is_merged


def _is_run(folder: Path) -> bool:
    """Whether what lies in `folder` is a run's: the name of a folder alone says little."""
    paths = layout.RunPaths.at(folder)
    try:
        if has_mode(paths.run_file, stat.S_IFREG):
            return True
        if any(map(layout.ATTEMPT_FILE.fullmatch, os.listdir(folder))):
            return True
    except OSError:
        return False
    if any(layout.RECORD_FILE.fullmatch(path.name) for path in list_sources(paths.records, [])):
        return True
    return any(
        layout.TRACE_FILE.fullmatch(path.name) and layout.parse_rollout_name(path.parent.name) is not None
        for path in list_sources(paths.traces, [])
    )
