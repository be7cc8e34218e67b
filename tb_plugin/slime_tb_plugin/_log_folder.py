"""The runs below TensorBoard's log folder. A run is found by comparing names, never by building a path."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.read import Damage, find_runs, is_run_folder

#: The key of a run that is the log folder itself.
ITSELF: Final = "."
#: More runs are not listed; the newest by name stay.
MOST_RUNS: Final = 2000
_UNASKABLE: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class RunRefusedError(Exception):
    """A run that is there and is not read; the message says why."""


def _can_be_asked_for(name: str) -> bool:
    """Whether a query can hold it: text without control characters."""
    return _UNASKABLE.search(name) is None


def _write_out(name: str) -> str:
    return _UNASKABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), name)


class RunFolder(NamedTuple):
    """A run's folder, its name in addresses, what changes when its files do, and the bytes of its records."""

    key: str
    path: Path
    version: str
    bytes: int


class LogFolder:
    """What TensorBoard was told to look at. It may not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))

    def keys(self, problems: list[str]) -> list[str]:
        """Of every run in it; what cannot be looked at is added to `problems`."""
        try:
            if is_run_folder(self.path):
                return [ITSELF]
        except OSError as error:
            problems.append(f"{self.path.name}: {error.strerror}")
            return []
        if not self.path.is_dir():
            return []
        damage: list[Damage] = []
        try:
            found = [run.name for run in find_runs(self.path, damage)]
        except OSError as error:
            problems.append(f"{self.path.name}: {error.strerror}")
            return []
        problems.extend(map(str, damage))
        problems.extend(
            f"{_write_out(name)}: a name that no address can hold; give it another"
            for name in found
            if not _can_be_asked_for(name)
        )
        return sorted(filter(_can_be_asked_for, found))[-MOST_RUNS:]

    def open(self, key: str) -> RunFolder | None:
        """The run of that key, ``None`` where there is none.

        Raises `RunRefusedError` for one that leads out of the log folder.
        """
        return self.look_at(key) if self._lists(key) else None

    def _lists(self, key: str) -> bool:
        """Whether it is one of `keys`, without a look at all the others."""
        try:
            if is_run_folder(self.path):
                return key == ITSELF
            if not _can_be_asked_for(key) or key not in os.listdir(self.path):
                return False
            return (self.path / key).is_dir() and is_run_folder(self.path / key)
        except OSError:
            return False

    def look_at(self, key: str) -> RunFolder:
        """The run of one of `keys`. Raises `RunRefusedError` for one that leads out of the log folder."""
        path = self.path if key == ITSELF else self.path / key
        if not self._holds(path):
            raise RunRefusedError(f"{key} is a link that leads out of the log folder; it is not followed")
        return RunFolder(key, path, *self._look(path))

    def _holds(self, path: Path) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(self.path)

    def _look(self, run: Path) -> tuple[str, int]:
        """A digest of names, sizes, inodes and times of all that answers are made from; bytes of records."""
        digest = hashlib.sha256()
        records = f"{RunPaths.at(run).records}{os.sep}"
        size = 0
        for path, about in sorted(self._files(run)):
            digest.update(f"{path}\0{about}\n".encode("utf-8", "surrogateescape"))
            if path.startswith(records):
                size += about[0]
        return digest.hexdigest()[:16], size

    def _files(self, run: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Run, attempt, record and window files; a link that leads out of the log folder refuses the run."""
        folders = [(run, 0)]
        while folders:
            folder, depth = folders.pop()
            try:
                entries = list(os.scandir(folder))
            except OSError:  # whoever reads it tells why
                continue
            for entry in entries:
                if depth == 0 and entry.name == "merged":
                    continue
                if entry.is_symlink() and not self._holds(Path(entry.path)):
                    link = Path(entry.path).relative_to(self.path)
                    raise RunRefusedError(f"{link} is a link that leads out of the log folder")
                try:
                    about = entry.stat()
                except OSError:  # it was given another name
                    continue
                if stat.S_ISDIR(about.st_mode):
                    if depth < 2:
                        folders.append((Path(entry.path), depth + 1))
                elif stat.S_ISREG(about.st_mode):
                    yield entry.path, (about.st_size, about.st_mtime_ns, about.st_ino, about.st_dev)
