"""Clocks: domains, (monotonic, realtime) pairs, conversions. Knows no files and no framework."""

from ._alignment import ASSUMED_WALL_CLOCK, NO_CLOCK_PAIRS, SAME_CLOCK, Alignment, align_domains, convert_span
from ._domain import read_clock_domain
from ._kineto import EARLIEST_UNIX_NS, decimal_us_to_ns, kineto_unix_ns, ns_to_decimal_us
from ._mapping import ClockMapping, ClockPiece, ClockStep, PairFolder
from ._pairs import ClockPair, read_pair

__all__ = [
    "ASSUMED_WALL_CLOCK",
    "EARLIEST_UNIX_NS",
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
    "ns_to_decimal_us",
    "read_clock_domain",
    "read_pair",
]
