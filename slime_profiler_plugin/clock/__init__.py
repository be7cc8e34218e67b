"""Clocks: domains, (monotonic, realtime) pairs, conversions. Knows no files and no framework."""

from ._domain import read_clock_domain
from ._pairs import ClockPair, read_pair

__all__ = ["ClockPair", "read_clock_domain", "read_pair"]
