"""Bringing the monotonic clocks of several hosts onto one of them.

What knows a better relation than wall clocks (probes, fits) joins here: as another way
to make an `Alignment`, with a `basis` of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ._mapping import SLEW_DIVISOR, ClockMapping

SAME_CLOCK: Final = "same clock"
ASSUMED_WALL_CLOCK: Final = "assumed: wall clock"
NO_CLOCK_PAIRS: Final = "assumed: wall clock, no clock pairs"


class Alignment(NamedTuple):
    """How one clock domain is brought onto the reference domain.

    `basis` says what the alignment rests on. The reference itself, and every process in its
    domain, has an offset of exactly 0.
    """

    domain: str
    basis: str
    own: ClockMapping | None
    reference: ClockMapping | None

    def to_reference(self, mono_ns: int) -> int:
        """A time of this domain on the reference clock, both monotonic ns."""
        if self.own is None or self.reference is None or self.basis == SAME_CLOCK:
            return mono_ns
        return self.reference.mono_ns(self.own.unix_ns(mono_ns))

    def span_to_reference(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """Both ends of something in this domain, on the reference clock."""
        return convert_span(self.to_reference, start_ns, end_ns)

    def unix_to_reference(self, unix_ns: int, near_ns: int | None = None) -> int:
        """A Unix time read in this domain, on the reference clock.

        `near_ns`, a monotonic time of this domain, decides where the wall clock showed
        `unix_ns` twice. Raises `ValueError` when the domain has no clock pair.
        """
        if self.own is None:
            raise ValueError(f"clock domain {self.domain} has no (monotonic, realtime) pair")
        return self.to_reference(self.own.mono_ns(unix_ns, near_ns))


def convert_span(convert: Callable[[int], int], start_ns: int, end_ns: int) -> tuple[int, int]:
    """Both ends converted, so that what nests still nests.

    Where the length would change by more than a slew can account for, a clock was stepped in between:
    then the measured length stays.
    """
    start, end = convert(start_ns), convert(end_ns)
    length = end_ns - start_ns
    if abs(end - start - length) * SLEW_DIVISOR > length + SLEW_DIVISOR:
        end = start + length
    return start, end


def align_domains(mappings: Mapping[str, ClockMapping | None], reference: str) -> dict[str, Alignment]:
    """An `Alignment` for every domain in `mappings`; `reference` is one of them.

    Until a relation was measured, other domains stand where their wall clocks put them.
    """
    base = mappings[reference]
    alignments = {}
    for domain, own in mappings.items():
        assumed = ASSUMED_WALL_CLOCK if own and base else NO_CLOCK_PAIRS
        alignments[domain] = Alignment(domain, SAME_CLOCK if domain == reference else assumed, own, base)
    return alignments
