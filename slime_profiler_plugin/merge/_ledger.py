"""Conservation: nothing that was read vanishes without a name. Rule 6."""

from __future__ import annotations

from collections import Counter

import msgspec


class ConservationError(AssertionError):
    """Something was read and is neither in the output nor accounted for."""


class Ledger(msgspec.Struct):
    """What became of everything one source holds, for one output.

    `read` was counted by the reader. `written` are events in the output, `other_rollouts` what
    belongs elsewhere, `described` lines that are no events (identity, thread names, clock
    pairs), `joined` ends that became a part of what they end, `dropped` the rest by reason.
    """

    source: str
    read: int = 0
    written: int = 0
    other_rollouts: int = 0
    described: int = 0
    joined: int = 0
    dropped: Counter[str] = msgspec.field(default_factory=Counter)

    def check(self) -> None:
        """Raises `ConservationError` when the sums differ."""
        accounted = self.written + self.other_rollouts + self.described + self.joined
        accounted += sum(self.dropped.values())
        if accounted != self.read:
            raise ConservationError(
                f"{self.source}: {self.read} read, but {accounted} accounted for: {self.written} written, "
                f"{self.other_rollouts} of other rollouts, {self.described} descriptions, "
                f"{self.joined} joined, {dict(self.dropped)} dropped"
            )

    def add(self, other: Ledger) -> None:
        """Count another source's in."""
        self.read += other.read
        self.written += other.written
        self.other_rollouts += other.other_rollouts
        self.described += other.described
        self.joined += other.joined
        self.dropped.update(other.dropped)
