"""What the recorder hands to its parts: profiler windows, device brackets."""

from __future__ import annotations

from dataclasses import dataclass

from slime_profiler_plugin.config import Config
from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.schema import Process

from ._drops import Drops
from ._guard import Guard


@dataclass(frozen=True)
class PartContext:
    """One per recorder, shared by its parts."""

    #: Who this process is. The same object for the recorder's whole life; role, rank, ranks,
    #: world_size and engine are updated in place when they become known.
    identity: Process
    paths: RunPaths
    config: Config
    guard: Guard
    drops: Drops

    def drop(self, what: str, reason: str, count: int = 1) -> None:
        """Count a loss; the record file gets it as a `Drop` line at the next flush."""
        self.drops.add(what, reason, count)
