"""The marks of one device that are on their way, and the brackets that come of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from slime_profiler_plugin.schema import Device

from ._device_clock import DeviceClock, Placed
from ._device_layer import DeviceEvent, DeviceLayer, DeviceStream
from ._device_pool import EventPool

#: Marks looked at when a phase ends; each phase adds two. Some microseconds each.
_PER_PHASE: Final = 8


class Mark:
    """One end of a bracket, on its way. `begin` is set on the second end only."""

    __slots__ = ("anchor", "begin", "event", "phase_id", "placed")

    def __init__(self, event: DeviceEvent, anchor: int, begin: Mark | None, phase_id: int) -> None:
        self.event = event
        self.anchor = anchor
        self.begin = begin
        self.phase_id = phase_id
        self.placed: Placed | None = None


class DeviceMarks:
    """Marks in their order on each stream. Used by one thread at a time."""

    def __init__(
        self,
        layer: DeviceLayer,
        index: int,
        cap: int,
        now: Callable[[], int],
        emit: Callable[[Device], None],
    ) -> None:
        self._layer = layer
        self._index = index
        self._emit = emit
        self.pool = EventPool(layer, cap)
        self.clock = DeviceClock(layer, index, self.pool, now)
        self._streams: dict[int, deque[Mark]] = {}
        #: Number of the anchor before which nothing waits to be placed.
        self._placed_up_to = 0

    @property
    def pending(self) -> int:
        """Marks that are not placed yet."""
        return sum(map(len, list(self._streams.values())))

    @property
    def pending_brackets(self) -> int:
        """Brackets with both marks recorded and not both placed."""
        return sum(mark.begin is not None for marks in self._streams.values() for mark in marks)

    def record(self, stream: DeviceStream, begin: Mark | None = None, phase_id: int = -1) -> Mark | str:
        """A mark on `stream`, or why there is none."""
        relaxed = self._layer.relaxed
        if self.clock.due:  # before the mark: measured from a fresh anchor, its time is exact
            with relaxed():
                self.clock.anchor()
        if self.clock.last < 0:
            return "the device's clock was not known yet"
        made = self.pool.made
        event = self.pool.take()
        if event is None:
            with relaxed():
                if self.clock.due_early:
                    self.clock.anchor()
                self._collect(_PER_PHASE)
            event = self.pool.take()
        if event is None:
            return "too many brackets on their way"
        if self.pool.made == made:
            event.record(stream)
        else:  # a backend makes the event at its first record: not clearly allowed in a capture
            with relaxed():
                event.record(stream)
        mark = Mark(event, self.clock.last, begin, phase_id)
        marks = self._streams.get(stream.stream_id)
        if marks is None:
            marks = self._streams[stream.stream_id] = deque()
        marks.append(mark)
        return mark

    def collect_some(self) -> None:
        """Place a few marks, if an anchor has come after any."""
        if self.clock.last > self._placed_up_to:
            with self._layer.relaxed():
                self._collect(_PER_PHASE)

    def collect_all(self) -> None:
        """Place every mark that was reached, with an anchor set for it."""
        with self._layer.relaxed():
            self.clock.anchor()
            self._collect(self.pool.made, extrapolate=True)

    def _collect(self, most: int, *, extrapolate: bool = False) -> None:
        for stream_id, marks in list(self._streams.items()):
            while marks and most > 0:
                most -= 1
                if not self._place(stream_id, marks[0], extrapolate):
                    break
                marks.popleft()
            if not marks:
                del self._streams[stream_id]
        last = self.clock.last
        oldest = min((marks[0].anchor for marks in self._streams.values()), default=last)
        self.clock.forget_before(oldest)
        if oldest >= last:
            self._placed_up_to = last

    def _place(self, stream_id: int, mark: Mark, extrapolate: bool) -> bool:
        """Whether `mark` is done: placed, its event back, its bracket emitted."""
        if self.clock.last <= mark.anchor and not extrapolate:
            return False  # no later anchor to place it by: not worth a query
        if not mark.event.query():
            return False
        mark.placed = self.clock.place(mark.event, mark.anchor, extrapolate=extrapolate)
        if mark.placed is None:
            return False
        self.pool.give(mark.event)
        begin = mark.begin.placed if mark.begin is not None else None
        if begin is not None:
            self._emit(
                Device(
                    id=mark.phase_id,
                    device_type=self._layer.device_type,
                    device_index=self._index,
                    stream=stream_id,
                    start_ns=begin.ns,
                    dur_ns=max(0, mark.placed.ns - begin.ns),
                    uncertainty_ns=max(begin.uncertainty_ns, mark.placed.uncertainty_ns),
                )
            )
        return True
