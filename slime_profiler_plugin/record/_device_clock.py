"""A device's clock in terms of the host's: anchors, and where a mark lies between them.

An anchor is an event on a stream of our own whose host time is known: it was recorded after
one host time and seen reached before another. Between two anchors the clocks are taken to
run at a constant ratio; what is known of how wrong that is goes into the uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from ._device_layer import DeviceEvent, DeviceLayer, DeviceStream
from ._device_pool import EventPool

#: Nanoseconds between two anchors while there are brackets.
PERIOD_NS: Final = 1_000_000_000
#: The same when events run short.
_SHORTEST_NS: Final = 50_000_000
#: How often a fresh anchor is looked at before it is left for later: about a microsecond each.
#: Doubled, up to the most, after each that was not reached by then.
_LOOKS: Final = 16
_MOST_LOOKS: Final = 256
#: An anchor known no better than this is taken only if the drift since the last is worse, or
#: if marks have waited this long for one.
_GOOD_NS: Final = 100_000
_DRIFT: Final = 50e-6
_LONGEST_WAIT_NS: Final = 5 * PERIOD_NS
#: What the ratio may change by within a window, at least; NTP slewing shows as more.
_WANDER: Final = 2e-6
#: The same where no window beside it tells.
_UNKNOWN_WANDER: Final = 20e-6
#: A window whose ratio is known this well tells how much the ratio changes.
_TELLING: Final = 50e-6
#: What the ratio may be off where two anchors have not told it: a quartz error, and NTP's usual largest slew.
_UNKNOWN_RATIO: Final = 600e-6
#: Two reads of an event's clock: half a microsecond each, as CUDA promises.
_RESOLUTION_NS: Final = 1_000
#: elapsed_time is a float32 of milliseconds: a relative rounding of half a unit in the 24th bit.
_ROUNDING: Final = 2.0**-24
#: A mark is measured a second time for more than this.
_WORTH_MEASURING_NS: Final = 2 * _RESOLUTION_NS
_NS_PER_MS: Final = 1e6


class Placed(NamedTuple):
    """A mark's host time, wrong by at most `uncertainty_ns`."""

    ns: int
    uncertainty_ns: int


class _Anchor(NamedTuple):
    event: DeviceEvent
    ns: float
    uncertainty_ns: float
    #: Since the anchor before, on both clocks; 0 for the first.
    device_gap_ns: float
    host_gap_ns: float
    gap_error_ns: float

    @property
    def ratio(self) -> float:
        """Host nanoseconds per device nanosecond before this anchor; none before the first."""
        return self.host_gap_ns / self.device_gap_ns

    @property
    def ratio_error(self) -> float:
        """What the ratio may be off by; infinite where there is none."""
        return self.gap_error_ns / self.host_gap_ns if self.host_gap_ns else math.inf


class DeviceClock:
    """The anchors of one device. Used by one thread at a time; numbers of anchors only grow."""

    def __init__(
        self,
        layer: DeviceLayer,
        device_index: int,
        pool: EventPool,
        now: Callable[[], int],
    ) -> None:
        self._layer = layer
        self._stream: DeviceStream = layer.new_stream(device_index)
        self._pool = pool
        self._now = now
        self._anchors: list[_Anchor] = []
        self._first = 0
        self._waiting: tuple[DeviceEvent, int] | None = None
        self._next_ns = 0
        self._looks = _LOOKS

    @property
    def last(self) -> int:
        """Number of the newest anchor; -1 before the first."""
        return self._first + len(self._anchors) - 1

    @property
    def due(self) -> bool:
        """Whether `anchor` has something to do."""
        return self._waiting is not None or self._now() >= self._next_ns

    @property
    def due_early(self) -> bool:
        """The same when events run short: marks that wait for an anchor hold them."""
        return self._now() >= self._next_ns - PERIOD_NS + _SHORTEST_NS

    def anchor(self) -> None:
        """Set an anchor; or look at the one that was set before and not reached.

        At most 256 queries, 16 where the device is quick; never waits.
        """
        if self._waiting is not None:
            self._look(1)
            return
        # torch hands out few streams and may have given this one to the program as well.
        if self._layer.is_stream_capturing(self._stream):
            return
        event = self._pool.take_over_cap()
        before = self._now()
        self._next_ns = before + PERIOD_NS
        event.record(self._stream)
        self._waiting = (event, before)
        self._look(self._looks)
        if self._waiting is not None:
            self._looks = min(2 * self._looks, _MOST_LOOKS)

    def _look(self, times: int) -> None:
        assert self._waiting is not None
        event, before = self._waiting
        for _ in range(times):
            if event.query():
                self._waiting = None
                self._accept(event, before, self._now())
                return

    def _accept(self, event: DeviceEvent, before: int, after: int) -> None:
        uncertainty = (after - before) / 2 + 1
        ns = (before + after) / 2
        if not self._anchors:
            self._anchors.append(_Anchor(event, ns, uncertainty, 0.0, 0.0, 0.0))
            return
        last = self._anchors[-1]
        age = ns - last.ns
        if uncertainty > max(_GOOD_NS, _DRIFT * age) and age < _LONGEST_WAIT_NS:
            self._pool.give(event)
            return
        gap = last.event.elapsed_time(event) * _NS_PER_MS
        if gap <= 0:  # closer together than the device's clock can tell
            self._pool.give(event)
            return
        self._anchors.append(_Anchor(event, ns, uncertainty, gap, age, uncertainty + last.uncertainty_ns))

    def place(self, event: DeviceEvent, anchor: int, *, extrapolate: bool = False) -> Placed | None:
        """Host time of a mark that was reached, and recorded after anchor number `anchor`.

        ``None`` while no later anchor encloses it; with `extrapolate` it is then reckoned
        from the last anchor on, at the ratio known so far. Asks for the time from an earlier
        to a later event only: not every backend can tell the reverse.
        """
        index = anchor - self._first
        measured = at = self._anchors[index].event.elapsed_time(event) * _NS_PER_MS
        while index + 1 < len(self._anchors):
            gap = self._anchors[index + 1].device_gap_ns
            if at < gap:
                return self._between(index, at, event, 2 * measured * _ROUNDING + _RESOLUTION_NS)
            at -= gap
            index += 1
        return self._beyond(at, measured) if extrapolate else None

    def _between(self, index: int, at: float, event: DeviceEvent, error: float) -> Placed:
        """`at` after anchor `index`, give or take `error`, and before the next."""
        left, right = self._anchors[index], self._anchors[index + 1]
        rest = right.device_gap_ns - at
        share = at / right.device_gap_ns
        near = min(at, rest)
        if near < at:
            error += 2 * right.device_gap_ns * _ROUNDING
        if near > error > _WORTH_MEASURING_NS:  # from the nearer end, where less is rounded
            first, second = (left.event, event) if at <= rest else (event, right.event)
            near = first.elapsed_time(second) * _NS_PER_MS
            error = near * _ROUNDING + _RESOLUTION_NS
        ns = left.ns + near * right.ratio if at <= rest else right.ns - near * right.ratio
        wander = self._wander(index)
        uncertainty = (1 - share) * left.uncertainty_ns + share * right.uncertainty_ns + near * wander
        return Placed(round(ns), math.ceil(uncertainty + error))

    def _wander(self, index: int) -> float:
        """How far the ratio may be from constant between anchors `index` and `index` + 1.

        A change within a window shows as a difference to the windows beside it: to one of
        them, at least by half. Windows too short for the anchors' error tell nothing.
        """
        right = self._anchors[index + 1]
        beside = self._anchors[index : index + 1] + self._anchors[index + 2 : index + 3]
        changes = [abs(right.ratio - other.ratio) for other in beside if other.ratio_error < _TELLING]
        return max(_WANDER, *changes) if changes else _UNKNOWN_WANDER

    def _beyond(self, at: float, measured: float) -> Placed:
        last = self._anchors[-1]
        ratio, unsure = 1.0, _UNKNOWN_RATIO
        if last.ratio_error + _WANDER < unsure:
            ratio, unsure = last.ratio, last.ratio_error + _WANDER
        error = 2 * measured * _ROUNDING + _RESOLUTION_NS
        return Placed(round(last.ns + at * ratio), math.ceil(last.uncertainty_ns + at * unsure + error))

    @property
    def held(self) -> int:
        """Events that stand for anchors, the one that is waited for included."""
        return len(self._anchors) + (self._waiting is not None)

    def forget_before(self, anchor: int) -> None:
        """Anchors that no mark needs go back to the pool; two stay, for their ratio."""
        while self._first < anchor - 1 and len(self._anchors) > 2:
            self._pool.give(self._anchors.pop(0).event)
            self._first += 1
