"""Statistics of pairs: two neighbouring measurements, so that what drifts slowly is in both."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

CONFIDENCE = 0.95
#: With fewer pairs no interval of this kind reaches the confidence.
LEAST = 6


class Summary(NamedTuple):
    """Of `pairs` values: the median, the interval it lies in with `CONFIDENCE`, the quartiles' distance."""

    median: float
    low: float
    high: float
    spread: float
    pairs: int

    def scaled(self, factor: float) -> Summary:
        """The summary of all values times `factor` > 0."""
        median, low, high, spread = (value * factor for value in self[:4])
        return Summary(median, low, high, spread, self.pairs)

    def shifted(self, by: float) -> Summary:
        """The summary of all values plus `by`."""
        return Summary(self.median + by, self.low + by, self.high + by, self.spread, self.pairs)


def relative(pairs: Iterable[tuple[float, float]]) -> list[float]:
    """(with, without) as what "with" costs more, relative to "without"."""
    return [with_ / without - 1 for with_, without in pairs]


def summarize(values: Iterable[float]) -> Summary:
    """Median and its sign interval, which assumes nothing about the values' distribution.

    The interval is infinite with fewer than `LEAST` values. Raises `statistics.StatisticsError` with none.
    """
    ordered = sorted(values)
    n = len(ordered)
    median = statistics.median(ordered)
    outside = _outside(n)
    low, high = (ordered[outside - 1], ordered[n - outside]) if outside else (-math.inf, math.inf)
    quartiles = statistics.quantiles(ordered, n=4) if n > 1 else [median] * 3
    return Summary(median, low, high, quartiles[2] - quartiles[0], n)


def _outside(n: int) -> int:
    """The largest k for which the kth value from either end bounds the median with `CONFIDENCE`.

    Each value is above the true median with probability 1/2, so how many are is binomial.
    """
    k, below = 0, 0.0
    while k < n:
        below += math.comb(n, k) / 2**n
        if below > (1 - CONFIDENCE) / 2:
            break
        k += 1
    return k
