"""Counting what was lost, so that nothing is lost silently."""

from __future__ import annotations

import threading
import time

from slime_profiler_plugin.schema import Drop


class Drops:
    """Losses since the last `take`, by what and why, and the total ever.

    Any thread may `add`, also inside a signal handler: the lock is re-entrant.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start anew, with a lock that nobody holds: for a forked child."""
        self._lock = threading.RLock()
        self._pending: dict[tuple[str, str], tuple[int, dict[str, int]]] = {}
        self.total = 0

    def add(self, what: str, reason: str, count: int = 1, names: dict[str, int] | None = None) -> None:
        """`count` more of `what` were lost because of `reason`; `names` counts phases by name."""
        with self._lock:
            self.total += count
            before, by_name = self._pending.get((what, reason), (0, {}))
            for name, n in (names or {}).items():
                by_name[name] = by_name.get(name, 0) + n
            self._pending[what, reason] = (before + count, by_name)

    def take(self) -> list[Drop]:
        """One line per (what, reason) since the last call; they are no longer pending."""
        with self._lock:
            pending, self._pending = self._pending, {}
        now = time.monotonic_ns()
        return [
            Drop(at_ns=now, what=what, reason=reason, count=count, names=names)
            for (what, reason), (count, names) in pending.items()
        ]

    def put_back(self, lines: list[Drop]) -> None:
        """`take`n lines that could not be written are pending again; the total stays."""
        with self._lock:
            for line in lines:
                self.add(line.what, line.reason, line.count, line.names)
                self.total -= line.count
