"""Reading one run from one or several copies of its folder."""

from __future__ import annotations

import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from slime_profiler_plugin import layout, schema

from ._damage import Damage, ReadError, VanishedError
from ._entries import can_open, has_mode, list_entries, list_sources, may_be_file, read_run_file, refuse
from ._files import pick_longest
from ._process import ProcessRecords, scan_process
from .kineto import TraceRefusedError, read_header
from .records import LinesRefusedError, Segment, read_process_line
from .run import Run, TraceBeside, TraceWindow
from .traces import open_trace, pack

#: More segments than the budget of a process allows for: a damaged number.
_MOST_SEGMENTS: Final = 1000
#: An export that was cut off before its file got its name.
_UNFINISHED: Final = ".tmp"
_STEM: Final = re.compile(r"(?P<stem>.+\.pt\.trace\.json)(\.gz)?(\.tmp)?")


class FolderOfRunsError(ReadError):
    """The folder holds runs and is none itself.

    `runs` lists their folders, `damage` the folders of which that cannot be known.
    """

    def __init__(self, folder: Path, runs: list[Path], damage: list[Damage]) -> None:
        names = ", ".join(run.name for run in runs)
        super().__init__(f"{folder} holds {len(runs)} runs, name one: {names}{_tell_damage(damage)}")
        self.folder = folder
        self.runs = runs
        self.damage = damage


def is_run_folder(folder: Path) -> bool:
    """Whether `folder` looks like the folder of one run. Raises `OSError` where that cannot be known."""
    paths = layout.RunPaths.at(folder)
    if has_mode(paths.run_file, stat.S_IFREG):
        return True
    if has_mode(paths.records, stat.S_IFDIR) or has_mode(paths.traces, stat.S_IFDIR):
        return True
    return has_mode(folder, stat.S_IFDIR) and any(map(layout.ATTEMPT_FILE.fullmatch, os.listdir(folder)))


def find_runs(folder: Path, damage: list[Damage]) -> list[Path]:
    """The run folders directly inside `folder`, by name.

    An entry of which that cannot be known is none, and is added to `damage`.
    """
    entries = sorted(folder / name for name in os.listdir(folder))
    return [entry for entry in entries if _holds_run(entry, damage)]


def _holds_run(entry: Path, damage: list[Damage]) -> bool:
    try:
        return has_mode(entry, stat.S_IFDIR) and is_run_folder(entry)
    except OSError as error:
        damage.append(refuse(entry, error))
        return False


def read_run(folders: Sequence[Path | str]) -> Run:
    """Read one run from copies of its folder, each of which may hold a part of it.

    Of several copies of one file the longest counts, once. Raises `FolderOfRunsError` for a folder
    that holds runs, `ReadError` for one that is none, or when the folders belong to different
    runs, and `VanishedError` when a file got another name meanwhile.
    """
    unique = list({Path(folder).resolve(): Path(folder) for folder in folders}.values())
    for folder in unique:
        check_run_folder(folder)
    damage: list[Damage] = []
    ids = {folder: read_run_id(folder, damage) for folder in unique}
    if len(set(ids.values())) != 1:
        told = ", ".join(f"{folder} is {run_id}" for folder, run_id in ids.items())
        raise ReadError(f"the folders belong to different runs: {told}")
    run = Run(ids[unique[0]], unique)
    run.damage.extend(damage)
    _read_processes(run)
    _read_windows(run)
    run.attempts = sorted({*attempt_numbers(unique, run.damage), *(p.process.attempt for p in run.processes)})
    return run


def check_run_folder(folder: Path) -> None:
    """Raises `FolderOfRunsError` for a folder that holds runs, `ReadError` for one that is no run."""
    if not folder.is_dir():
        what = "a file, not the folder of a run" if folder.exists() else "no such folder"
        raise ReadError(f"{folder}: {what}")
    if is_run_folder(folder):
        return
    damage: list[Damage] = []
    runs = find_runs(folder, damage)
    if runs:
        raise FolderOfRunsError(folder, runs, damage)
    told = f"it has no {layout.RUN_FILE}, records/ or traces/"
    raise ReadError(f"{folder} is no run folder: {told}{_tell_damage(damage)}")


def _tell_damage(damage: list[Damage]) -> str:
    return f"; cannot be looked at: {', '.join(f'{d.file}: {d.reason}' for d in damage)}" if damage else ""


def read_run_id(folder: Path, damage: list[Damage]) -> str:
    """The id of the run in `folder`.

    What ``run.json`` says, else the first file that can be read, else the folder's name. A
    ``run.json`` that does not say it is added to `damage`.
    """
    paths = layout.RunPaths.at(folder)
    about = read_run_file(paths.run_file, damage)
    told = about.get("run_id")
    if isinstance(told, str):
        return told
    if about:
        damage.append(Damage(str(paths.run_file), "corrupt", "no run_id in it"))
    # What cannot be listed is told by those who read the sources themselves.
    sources = (path for place in (paths.records, paths.traces) for path in list_sources(place, []))
    return next(filter(None, map(_told_run_id, filter(_is_source, sources))), folder.name)


def _is_source(path: Path) -> bool:
    known = layout.RECORD_FILE.fullmatch(path.name) or layout.TRACE_FILE.fullmatch(path.name)
    return known is not None and may_be_file(path)


def _told_run_id(path: Path) -> str | None:
    """The run that a record file or a window says it belongs to."""
    try:
        if layout.TRACE_FILE.fullmatch(path.name):
            told = read_header(path).identity.get("run_id")
            return None if told is None else str(told)
        process = read_process_line(path)
    except (LinesRefusedError, TraceRefusedError, ReadError):
        return None
    return None if process is None else process.run_id


def attempt_numbers(folders: Iterable[Path], damage: list[Damage]) -> set[int]:
    """The attempts that have a file of their own in one of `folders`.

    A folder that cannot be read is added to `damage`.
    """
    names = (entry.name for folder in folders for entry in list_entries(folder, damage))
    return {int(match[1]) for name in names if (match := layout.ATTEMPT_FILE.fullmatch(name))}


def _read_processes(run: Run) -> None:
    files: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for folder in run.folders:
        for path in list_sources(layout.RunPaths.at(folder).records, run.damage):
            match = layout.RECORD_FILE.fullmatch(path.name)
            if match and may_be_file(path):
                files[path.parent.name, f"{match['pid']}-{match['start']}"].append(path)
            else:
                run.ignored.append(path)
    for paths in files.values():
        records = _read_process(run, paths)
        if records is not None:
            run.processes.append(records)
    run.processes.sort(key=lambda r: (r.process.attempt, r.process.start_unix_ns, r.process.incarnation))


def _read_process(run: Run, paths: list[Path]) -> ProcessRecords | None:
    """The process that wrote `paths`, or ``None`` when it is refused, which the run's damage says."""
    if len(paths) > 1:  # one that may not be read must not cost us its copies, or the other segments
        paths = [path for path in paths if can_open(path, run.damage)]
        if not paths:
            return None
    try:
        segments, first = _order_segments(run, paths)
        if first is None:
            empty = all(path.stat().st_size == 0 for path in paths)
            reason = "the file is empty" if empty else "no readable process line"
            run.damage.append(Damage(str(paths[0]), "refused", reason))
            return None
        if first.run_id != run.run_id:
            run.damage.append(Damage(str(paths[0]), "refused", f"belongs to run {first.run_id}"))
            return None
        records = scan_process(segments, first)
    except VanishedError:
        raise
    except FileNotFoundError as error:
        raise VanishedError(f"{error.filename}: {error.strerror}") from error
    except OSError as error:
        run.damage.append(refuse(Path(error.filename or paths[0]), error))
        return None
    except (LinesRefusedError, ReadError) as error:
        reason = str(error).removeprefix(f"{paths[0]}: ")
        run.damage.append(Damage(str(paths[0]), "refused", reason))
        return None
    run.damage.extend(records.damage)
    return records


def _order_segments(run: Run, paths: list[Path]) -> tuple[list[Segment], schema.Process | None]:
    """One file per segment, oldest first, and the earliest process line."""
    copies: dict[int | None, list[Path]] = defaultdict(list)
    lines: dict[int | None, schema.Process] = {}
    # Before anything is read: what takes the place of a file meanwhile is another one.
    stats = {path: path.stat() for path in paths}
    for path in paths:
        process = read_process_line(path)
        match = layout.RECORD_FILE.fullmatch(path.name)
        number = None if process is None else process.segment
        if match and match["segment"]:
            number = int(match["segment"])
        copies[number].append(path)
        if process is not None:
            lines.setdefault(number, process)
    numbers = sorted(copies, key=lambda n: (n is None, n))
    known = {n for n in numbers if n is not None}
    for gap in sorted(set(range(min(max(known, default=0), _MOST_SEGMENTS))) - known):
        run.damage.append(Damage(str(paths[0]), "missing", f"segment {gap} of this process"))
    chosen = [copies[n][0] if len(copies[n]) == 1 else pick_longest(copies[n], run.damage) for n in numbers]
    segments = [Segment(path, stats[path].st_size, stats[path].st_ino) for path in chosen]
    first = next((lines[n] for n in numbers if n in lines), None)
    return segments, first


def _read_windows(run: Run) -> None:
    files: dict[tuple[str, str], list[Path]] = defaultdict(list)
    beside: dict[str, list[Path]] = defaultdict(list)
    for folder in run.folders:
        for path in list_sources(layout.RunPaths.at(folder).traces, run.damage):
            match = _STEM.fullmatch(path.name)
            known = layout.TRACE_FILE.fullmatch(path.name.removesuffix(_UNFINISHED))
            placed = layout.parse_rollout_name(path.parent.name) is not None
            if match and known and placed and may_be_file(path):
                files[path.parent.name, match["stem"]].append(path)
            elif path.parent.name == layout.RAY_FOLDER and layout.RAY_FILE.fullmatch(path.name):
                beside[path.name].append(path)
            else:
                run.ignored.append(path)
    for (folder_name, _), paths in sorted(files.items()):
        window = _read_window(run, folder_name, paths)
        if window is not None:
            run.windows.append(window)
    for _, paths in sorted(beside.items()):
        _read_beside(run, paths)


def _read_beside(run: Run, paths: list[Path]) -> None:
    path = paths[0] if len(paths) == 1 else pick_longest(paths, run.damage)
    match = layout.RAY_FILE.fullmatch(path.name)
    assert match is not None, "only such names are collected"
    try:
        run.beside.append(TraceBeside(int(match["attempt"]), open_trace(path)))
    except VanishedError:
        raise
    except (TraceRefusedError, ReadError) as error:
        run.damage.append(Damage(str(path), "refused", str(error).removeprefix(f"{path}: ")))


def _read_window(run: Run, folder_name: str, paths: list[Path]) -> TraceWindow | None:
    finished = [path for path in paths if path.suffix != _UNFINISHED]
    chosen = finished or paths
    path = chosen[0] if len(chosen) == 1 else pick_longest(chosen, run.damage)
    if not finished:
        run.damage.append(Damage(str(path), "truncated", "the export of this window did not finish"))
    match = layout.TRACE_FILE.fullmatch(path.name.removesuffix(_UNFINISHED))
    assert match is not None, "only such names are collected"
    try:
        header = pack(read_header(path))
    except VanishedError:
        raise
    except (TraceRefusedError, ReadError) as error:
        run.damage.append(Damage(str(path), "refused", str(error).removeprefix(f"{path}: ")))
        return None
    told = header.identity.get("run_id")
    if told is not None and told != run.run_id:
        run.damage.append(Damage(str(path), "refused", f"belongs to run {told}"))
        return None
    rank = header.identity.get("rank", None if match["rank"] == "x" else int(match["rank"]))
    role = header.identity.get("role") or match["role"]
    rollout = layout.parse_rollout_name(folder_name)
    assert rollout is not None, "only such folders are collected"
    return TraceWindow(path, rollout, role, rank, header)
