"""One monotonic clock in terms of Unix time, from (monotonic, realtime) pairs.

The offset ``unix - mono`` stands still until somebody steps or slews one of the clocks.
Every pair bounds it: it lies within ``error_ns`` of ``unix_ns - mono_ns``. Pairs whose
bounds overlap share one *piece* of constant offset, which takes the jitter of single
reads out of the mapping. Between two pieces the offset moves: along a line when the
difference can be a slew, else as a step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from ._pairs import ClockPair

#: A clock that is slewed gains or loses at most this part of a second per second: chrony's
#: default limit is 1/12. What moves faster was stepped.
SLEW_DIVISOR: Final = 10


class ClockPiece(NamedTuple):
    """From `first_ns` to `last_ns` (monotonic) the offset is within `error_ns` of `offset_ns`."""

    first_ns: int
    last_ns: int
    offset_ns: int
    error_ns: int


class ClockStep(NamedTuple):
    """The realtime clock jumped by `step_ns`; the first pair that shows it is at `mono_ns`."""

    mono_ns: int
    step_ns: int


class ClockMapping:
    """Conversions between one monotonic clock and Unix time, in integer nanoseconds.

    Before the first and after the last pair the nearest offset goes on. Raises `ValueError`
    when there is no pair.
    """

    def __init__(self, pairs: Iterable[ClockPair]) -> None:
        self.pieces = _find_pieces(sorted(set(pairs)))
        if not self.pieces:
            raise ValueError("a clock mapping needs at least one (monotonic, realtime) pair")
        self._starts = [piece.first_ns for piece in self.pieces]
        self.steps, self._stretches = _split_at_steps(self.pieces)

    def unix_ns(self, mono_ns: int) -> int:
        """Unix time of a monotonic one."""
        return mono_ns + self._offset(mono_ns)

    def mono_ns(self, unix_ns: int, near_ns: int | None = None) -> int:
        """Monotonic time of a Unix one; inverse of `unix_ns` to within 1 ns.

        A Unix time that passed twice (the clock was stepped back) has two answers: the one
        nearest to `near_ns` (monotonic) is returned, or the earliest. One that was skipped
        (stepped forward) becomes the moment of the step.
        """
        candidates = [stretch.find(unix_ns) for stretch in self._stretches]
        if near_ns is None:
            near_ns = self.pieces[0].first_ns
        # A stretch that really holds the time beats one that was clamped to its edge.
        return min(candidates, key=lambda found: (found[1], abs(found[0] - near_ns)))[0]

    def error_ns(self, mono_ns: int) -> int:
        """Bound on the error of `unix_ns` at `mono_ns`; outside the pairs, that of the nearest."""
        index = bisect_right(self._starts, mono_ns) - 1
        piece = self.pieces[max(index, 0)]
        if index < 0 or mono_ns <= piece.last_ns or index + 1 == len(self.pieces):
            return piece.error_ns
        after = self.pieces[index + 1]
        moved = abs(after.offset_ns - piece.offset_ns)
        return max(piece.error_ns, after.error_ns) + moved

    def constant_offset(self, first_ns: int, last_ns: int) -> int | None:
        """The one offset that holds from `first_ns` to `last_ns` (monotonic), if there is one."""
        before = bisect_right(self._starts, first_ns) - 1
        piece = self.pieces[max(before, 0)]
        starts_inside = first_ns <= piece.last_ns or before + 1 >= len(self.pieces)
        after = bisect_right(self._starts, last_ns) - 1
        ends_inside = last_ns <= piece.last_ns or max(before, 0) + 1 >= len(self.pieces)
        same = max(after, 0) == max(before, 0)
        return piece.offset_ns if same and starts_inside and ends_inside else None

    def _offset(self, mono_ns: int) -> int:
        index = bisect_right(self._starts, mono_ns) - 1
        piece = self.pieces[max(index, 0)]
        if index < 0 or mono_ns <= piece.last_ns or index + 1 == len(self.pieces):
            return piece.offset_ns
        after = self.pieces[index + 1]
        if _is_step(piece, after):
            return piece.offset_ns
        return _between(piece, after, mono_ns)


class _Stretch:
    """Pieces without a step between them: here Unix time only ever grows."""

    def __init__(self, pieces: list[ClockPiece], begin: int | None, end: int | None) -> None:
        self._pieces = pieces
        self._begin = begin
        self._end = end
        self._unix_starts = [piece.first_ns + piece.offset_ns for piece in pieces]

    def find(self, unix_ns: int) -> tuple[int, int]:
        """(monotonic time, ns by which it had to be moved into this stretch)."""
        index = max(bisect_right(self._unix_starts, unix_ns) - 1, 0)
        piece = self._pieces[index]
        mono = unix_ns - piece.offset_ns
        if mono > piece.last_ns and index + 1 < len(self._pieces):
            mono = _solve(piece, self._pieces[index + 1], unix_ns)
        inside = mono
        if self._begin is not None:
            inside = max(inside, self._begin)
        if self._end is not None:
            inside = min(inside, self._end - 1)
        return inside, abs(inside - mono)


class PairFolder:
    """Takes pairs in order of time and keeps what they say, not each of them.

    Pairs of one piece become its first and its last moment, with the offset and the error that
    all of them allow.
    """

    def __init__(self) -> None:
        self._done: list[ClockPiece] = []
        self._current: tuple[int, int, int, int] | None = None  # first, last, low, high

    def add(self, pair: ClockPair) -> None:
        """The next pair."""
        offset = pair.unix_ns - pair.mono_ns
        low, high = offset - pair.error_ns, offset + pair.error_ns
        if self._current is not None:
            first, _, known_low, known_high = self._current
            if max(low, known_low) <= min(high, known_high):
                self._current = (first, pair.mono_ns, max(low, known_low), min(high, known_high))
                return
            self._done.append(_piece(*self._current))
        self._current = (pair.mono_ns, pair.mono_ns, low, high)

    def pieces(self) -> list[ClockPiece]:
        """The pieces so far."""
        return self._done if self._current is None else [*self._done, _piece(*self._current)]

    def pairs(self) -> list[ClockPair]:
        """The ends of the pieces as pairs."""
        ends = dict.fromkeys((at, p) for p in self.pieces() for at in (p.first_ns, p.last_ns))
        return [ClockPair(at, at + p.offset_ns, p.error_ns) for at, p in ends]


def _find_pieces(pairs: list[ClockPair]) -> list[ClockPiece]:
    folder = PairFolder()
    for pair in pairs:
        folder.add(pair)
    return folder.pieces()


def _piece(first: int, last: int, low: int, high: int) -> ClockPiece:
    return ClockPiece(first, last, (low + high) // 2, (high - low + 1) // 2)


def _is_step(before: ClockPiece, after: ClockPiece) -> bool:
    gap = after.first_ns - before.last_ns
    return abs(after.offset_ns - before.offset_ns) * SLEW_DIVISOR > gap


def _split_at_steps(pieces: list[ClockPiece]) -> tuple[list[ClockStep], list[_Stretch]]:
    steps: list[ClockStep] = []
    stretches: list[_Stretch] = []
    run: list[ClockPiece] = []
    begin: int | None = None
    for piece in pieces:
        if run and _is_step(run[-1], piece):
            steps.append(ClockStep(piece.first_ns, piece.offset_ns - run[-1].offset_ns))
            stretches.append(_Stretch(run, begin, piece.first_ns))
            run, begin = [], piece.first_ns
        run.append(piece)
    if run:
        stretches.append(_Stretch(run, begin, None))
    return steps, stretches


def _between(before: ClockPiece, after: ClockPiece, mono_ns: int) -> int:
    gap = after.first_ns - before.last_ns
    moved = (after.offset_ns - before.offset_ns) * (mono_ns - before.last_ns)
    return before.offset_ns + moved // gap


def _solve(before: ClockPiece, after: ClockPiece, unix_ns: int) -> int:
    """The monotonic time in the gap between two pieces whose Unix time is `unix_ns`."""
    gap = after.first_ns - before.last_ns
    unix_gap = gap + after.offset_ns - before.offset_ns
    passed = unix_ns - (before.last_ns + before.offset_ns)
    return min(before.last_ns + passed * gap // unix_gap, after.first_ns)
