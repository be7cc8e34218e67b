"""Where the tab keeps what it makes: in the user's cache folder, never among the runs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from slime_profiler_plugin.analyze import cache_folder

from ._log_folder import LogFolder


class CacheFolders:
    """`tables` and `merged`, made when they are first asked for.

    A folder that cannot be written, or lies below the log folder, is replaced by a temporary one, which goes
    with this object.
    """

    def __init__(self, log_folder: LogFolder) -> None:
        self._log_folder = log_folder
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    @property
    def tables(self) -> Path:
        """For the tables of runs; those that ``slime-profiler report`` keeps too."""
        return self._find(cache_folder())

    @property
    def merged(self) -> Path:
        """For merged timelines."""
        return self._find(cache_folder().with_name("tensorboard"))

    def _find(self, folder: Path) -> Path:
        try:
            inside = Path(os.path.realpath(folder)).is_relative_to(self._log_folder.path)
            if not inside:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                if os.access(folder, os.W_OK | os.X_OK):
                    return folder
        except OSError:  # below a file, a full or read-only disk, no home
            pass
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="slime-profiler-tensorboard-")
        replaced = Path(self._temporary.name) / folder.name
        replaced.mkdir(exist_ok=True)
        return replaced
