"""Clocks: domains, (monotonic, realtime) pairs, conversions. Knows no files and no framework."""

from ._alignment import ASSUMED_WALL_CLOCK, NO_CLOCK_PAIRS, SAME_CLOCK, Alignment, align_domains, convert_span
from ._domain import read_clock_domain
from ._kineto import decimal_us_to_ns, kineto_unix_ns
from ._mapping import ClockMapping, ClockPiece, ClockStep, PairFolder
from ._pairs import ClockPair, read_pair

__all__ = [
    "ASSUMED_WALL_CLOCK",
    "NO_CLOCK_PAIRS",
    "SAME_CLOCK",
    "Alignment",
    "ClockMapping",
    "ClockPair",
    "ClockPiece",
    "ClockStep",
    "PairFolder",
    "align_domains",
    "convert_span",
    "decimal_us_to_ns",
    "kineto_unix_ns",
    "read_clock_domain",
    "read_pair",
]
