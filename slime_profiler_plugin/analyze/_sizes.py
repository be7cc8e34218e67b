"""How much room a folder takes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from slime_profiler_plugin.read import Damage


def total_bytes(folder: Path, damage: list[Damage]) -> int:
    """Of all files below `folder`; links do not count, nor what vanishes meanwhile.

    What cannot be looked at is added to `damage`.
    """

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            damage.append(Damage(str(error.filename), "refused", error.strerror or str(error)))

    def count(path: str) -> int:
        try:
            about = os.lstat(path)
        except OSError as error:
            refuse(error)
            return 0
        return about.st_size if stat.S_ISREG(about.st_mode) else 0

    walk = os.walk(folder, onerror=refuse)
    return sum(count(os.path.join(where, name)) for where, _, names in walk for name in names)
