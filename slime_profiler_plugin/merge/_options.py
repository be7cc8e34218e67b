"""What of the sources a merge shall write, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: Top-level key of what a merge writes; a file that has it is no source of another.
MERGE_KEY: Final = "slime_profiler_merge"

#: Told now and then: what is being done, bytes read so far, bytes to read.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class MergeOptions:
    """Choices of a merge; by default everything is written.

    `jobs`: worker processes, 0 for as many as there are cores. `ranks` and `roles`: only processes of those.
    `categories`: only events of those. `min_duration_ns`: only slices that lasted as long, arrows only where
    both of their slices are there. `window_ns`: only what touches that stretch, in ns from the start of the
    whole. `budget_bytes`: about how large the output may be before it is compressed; the shortest kernels go
    first; 0 for no bound. `archive`: also a ZIP of the untouched sources with Perfetto's manifest.
    """

    jobs: int = 0
    ranks: frozenset[int] | None = None
    roles: frozenset[str] | None = None
    categories: frozenset[str] | None = None
    min_duration_ns: int = 0
    window_ns: tuple[int, int] | None = None
    budget_bytes: int = 0
    archive: bool = False
    mark: str = MERGE_KEY
    progress: Progress | None = None

    def takes(self, role: str | None, rank: int | None) -> bool:
        """Whether events of such a process are asked for."""
        if self.roles is not None and role not in self.roles:
            return False
        return self.ranks is None or rank in self.ranks
