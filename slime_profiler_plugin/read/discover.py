"""Finding every source in files and folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ._files import Damage
from .traces import TraceFile, open_trace


class Discovery(NamedTuple):
    """What was found: traces, run folders, what is no source and why, what could not be read."""

    traces: list[TraceFile]
    runs: list[Path]
    skipped: list[tuple[Path, str]]
    damage: list[Damage]


def discover(paths: Sequence[Path]) -> Discovery:
    """Every source in `paths`."""
    return Discovery([open_trace(path) for path in paths], [], [], [])
