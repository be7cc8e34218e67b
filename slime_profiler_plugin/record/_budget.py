"""What is left out when a process has written as much as it may.

The value of a name is the program time that one of its lines accounts for: the mean duration
of its phases. At the budget, and again after each further 1/32 of it, names are muted from the
shortest mean duration up, until those muted made at least half of the lines since the last
time. So the flow halves at least each time, short and frequent phases go first, and what
remains is the long and rare ones. At 1/4 over the budget all are muted.

Marks last no time: they go first. What a muted name loses is counted.
"""

from __future__ import annotations

from typing import Final

_STEP_OF_BUDGET: Final = 32
_STEPS: Final = 8


class _Name:
    __slots__ = ("lines", "muted", "recent", "total_ns")

    def __init__(self) -> None:
        self.lines = 0
        self.total_ns = 0
        #: Lines since the last muting.
        self.recent = 0
        self.muted = False


class Budget:
    """Decides which names are still written."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._names: dict[str, _Name] = {}
        self._steps = 0
        self._all_muted = False

    def admits(self, name: str, dur_ns: int) -> bool:
        """Whether a line of `name` is written; if so it is taken into account."""
        entry = self._names.get(name)
        if entry is None:
            entry = self._names[name] = _Name()
        if entry.muted or self._all_muted:
            return False
        entry.lines += 1
        entry.recent += 1
        entry.total_ns += dur_ns
        return True

    def spent(self, total_bytes: int) -> None:
        """Tell how much the process has on disk now; mutes names when it is too much."""
        steps = (total_bytes - self._limit) // max(1, self._limit // _STEP_OF_BUDGET) + 1
        if steps <= self._steps:
            return
        self._steps = steps
        self._all_muted = steps > _STEPS
        self._mute_half()

    def _mute_half(self) -> None:
        heard = [entry for entry in self._names.values() if not entry.muted]
        heard.sort(key=lambda entry: entry.total_ns / max(entry.lines, 1))
        aim = sum(entry.recent for entry in heard) / 2
        gone = 0
        for entry in heard:
            if gone >= aim and gone:
                break
            entry.muted = True
            gone += entry.recent
        for entry in heard:
            entry.recent = 0
