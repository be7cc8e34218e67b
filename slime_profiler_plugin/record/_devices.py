"""Device-event brackets: what a stream did between the two ends of a phase.

At each end of a phase an event is recorded on the current stream. Nothing ever waits for
it. On the thread that ends a phase, a few marks that the device has reached meanwhile are
placed on the host's clock (`DeviceClock`), and a bracket whose two marks are placed is
emitted. No thread of our own touches the device.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from slime_profiler_plugin.schema import Device

from ._device_clock import DeviceClock, Placed
from ._device_layer import NO_DEVICE, DeviceEvent, DeviceLayer, DeviceStream, find_layer
from ._device_pool import EventPool
from ._guard import FAILURE

PART: Final = "device_events"
#: Events per device that may be on their way: two for each bracket.
CAP: Final = 20_000
#: Marks looked at when a phase ends; each phase adds two. A few microseconds each.
_PER_PHASE: Final = 8
#: Another thread is in here for some ten microseconds; a signal handler's own thread forever.
_PATIENCE_S: Final = 0.02
_DROP: Final = "device"


class Failures(Protocol):
    """Where a part says that it failed: `Guard`."""

    def failed(self, part: str, error: BaseException | str) -> None:
        """Disable `part`."""


class Part(Protocol):
    """What brackets need of the recorder: `PartContext`."""

    @property
    def guard(self) -> Failures:
        """Told of the failure that ends this part."""

    def drop(self, what: str, reason: str, count: int = 1) -> None:
        """Count a loss."""


class _Mark:
    """One end of a bracket, on its way. `begin` is set on the second end only."""

    __slots__ = ("anchor", "begin", "event", "phase_id", "placed")

    def __init__(self, event: DeviceEvent, anchor: int, begin: _Mark | None, phase_id: int) -> None:
        self.event = event
        self.anchor = anchor
        self.begin = begin
        self.phase_id = phase_id
        self.placed: Placed | None = None


class Handle:
    """A bracket whose phase is running."""

    __slots__ = ("begin", "stream")

    def __init__(self, begin: _Mark, stream: DeviceStream) -> None:
        self.begin = begin
        self.stream = stream


class _Pending:
    """The marks of one device that are on their way: in order on each stream."""

    __slots__ = ("clock", "pool", "streams")

    def __init__(self, clock: DeviceClock, pool: EventPool) -> None:
        self.clock = clock
        self.pool = pool
        self.streams: dict[int, deque[_Mark]] = {}

    def add(self, stream: DeviceStream, mark: _Mark) -> None:
        marks = self.streams.get(stream.stream_id)
        if marks is None:
            marks = self.streams[stream.stream_id] = deque()
        marks.append(mark)


class DeviceBrackets:
    """The brackets of one process. Any thread may call; no call waits for the device.

    A failure disables this part only: it is told to the guard, and every later call is a
    no-op. `find` and `now` are torch's accelerator and CLOCK_MONOTONIC unless a test says
    otherwise.
    """

    def __init__(
        self,
        part: Part,
        emit: Callable[[Device], None],
        *,
        find: Callable[[], DeviceLayer | str | None] = find_layer,
        now: Callable[[], int] = time.monotonic_ns,
        cap: int = CAP,
    ) -> None:
        self._part = part
        self._emit = emit
        self._find = find
        self._now = now
        self._cap = cap
        self._lock = threading.Lock()
        self._layer: DeviceLayer | None = None
        self._off = False
        self._devices: dict[int, _Pending] = {}

    @property
    def pending(self) -> int:
        """Marks that were recorded and are not placed yet."""
        devices = list(self._devices.values())
        return sum(len(marks) for device in devices for marks in list(device.streams.values()))

    def start(self) -> Handle | None:
        """Mark the begin of a phase. ``None``: no bracket, the phase's timing is ``host``."""
        if self._off:
            return None
        try:
            layer = self._layer or self._look_for_layer()
            if layer is None:
                return None
            if layer.is_capturing():
                self._part.drop(_DROP, "a graph was being captured")
                return None
            stream = layer.current_stream()
            if stream is None or not self._enter():
                return None
            try:
                device = self._devices.get(stream.device_index) or self._add_device(layer, stream)
                mark = self._record(layer, device, stream, None, -1)
            finally:
                self._lock.release()
            return None if mark is None else Handle(mark, stream)
        except FAILURE as error:
            self._fail(error)
            return None

    def finish(self, handle: Handle | None, phase_id: int) -> None:
        """Mark the end of phase `phase_id`, and place a few marks that were reached."""
        layer = self._layer
        if self._off or handle is None or layer is None:
            return
        try:
            if layer.is_capturing():
                self._part.drop(_DROP, "a graph was being captured")
                return
            stream = layer.current_stream()
            if (
                stream is None
                or stream.stream_id != handle.stream.stream_id
                or stream.device_index != handle.stream.device_index
            ):
                self._part.drop(_DROP, "the current stream changed within the phase")
                return
            if not self._enter():
                return
            try:
                self._record(layer, self._devices[stream.device_index], stream, handle.begin, phase_id)
                with layer.relaxed():
                    self._collect(_PER_PHASE)
            finally:
                self._lock.release()
        except FAILURE as error:
            self._fail(error)

    def suspend(self) -> None:
        """Before the process gives its device memory away: emit all that was reached.

        The rest stays pending for later calls. Neither waits nor synchronises.
        """
        self._emit_reached()

    def close(self) -> None:
        """Emit all that was reached; what was not is dropped and counted."""
        self._emit_reached()
        self._off = True
        self._give_up("the device had not reached it at the end")

    def _look_for_layer(self) -> DeviceLayer | None:
        found = self._find()
        if isinstance(found, str):
            assert found == NO_DEVICE
            self._off = True
            return None
        self._layer = found
        return found

    def _enter(self) -> bool:
        """Take the lock; not when this thread was interrupted while holding it."""
        if self._lock.acquire(blocking=False) or self._lock.acquire(timeout=_PATIENCE_S):
            return True
        self._part.drop(_DROP, "brackets were in use by a thread that did not go on")
        return False

    def _add_device(self, layer: DeviceLayer, stream: DeviceStream) -> _Pending:
        pool = EventPool(layer, self._cap)
        clock = DeviceClock(layer, stream.device_index, pool, self._now)
        device = self._devices[stream.device_index] = _Pending(clock, pool)
        return device

    def _record(
        self, layer: DeviceLayer, device: _Pending, stream: DeviceStream, begin: _Mark | None, phase_id: int
    ) -> _Mark | None:
        if device.clock.due:  # before the mark: measured from a fresh anchor, its time is exact
            with layer.relaxed():
                device.clock.anchor()
        if device.clock.last < 0:
            self._part.drop(_DROP, "the device's clock was not known yet")
            return None
        made = device.pool.made
        event = device.pool.take()
        if event is None:
            with layer.relaxed():
                self._collect(_PER_PHASE)
            event = device.pool.take()
        if event is None:
            self._part.drop(_DROP, "too many brackets on their way")
            return None
        if device.pool.made == made:
            event.record(stream)
        else:  # a backend makes the event at its first record: not clearly allowed in a capture
            with layer.relaxed():
                event.record(stream)
        mark = _Mark(event, device.clock.last, begin, phase_id)
        device.add(stream, mark)
        return mark

    def _emit_reached(self) -> None:
        layer = self._layer
        if self._off or layer is None:
            return
        try:
            if layer.is_capturing() or not self._enter():
                return
            try:
                with layer.relaxed():
                    for device in self._devices.values():
                        device.clock.anchor()
                    self._collect(2 * self._cap * len(self._devices), extrapolate=True)
            finally:
                self._lock.release()
        except FAILURE as error:
            self._fail(error)

    def _collect(self, most: int, *, extrapolate: bool = False) -> None:
        """Place up to `most` marks."""
        for index, device in self._devices.items():
            for stream_id, marks in list(device.streams.items()):
                while marks and most > 0:
                    most -= 1
                    if not self._place(device, index, stream_id, marks[0], extrapolate):
                        break
                    marks.popleft()
                if not marks:
                    del device.streams[stream_id]
            oldest = (marks[0].anchor for marks in device.streams.values())
            device.clock.forget_before(min(oldest, default=device.clock.last))

    def _place(self, device: _Pending, index: int, stream_id: int, mark: _Mark, extrapolate: bool) -> bool:
        """Whether `mark` is done: placed, its event back, its bracket emitted."""
        if device.clock.last <= mark.anchor and not extrapolate:
            return False  # no later anchor to place it by: not worth a query
        if not mark.event.query():
            return False
        mark.placed = device.clock.place(mark.event, mark.anchor, extrapolate=extrapolate)
        if mark.placed is None:
            return False
        device.pool.give(mark.event)
        begin = mark.begin.placed if mark.begin is not None else None
        if begin is not None:
            self._emit(
                Device(
                    id=mark.phase_id,
                    device_type=self._layer.device_type if self._layer else "",
                    device_index=index,
                    stream=stream_id,
                    start_ns=begin.ns,
                    dur_ns=max(0, mark.placed.ns - begin.ns),
                    uncertainty_ns=max(begin.uncertainty_ns, mark.placed.uncertainty_ns),
                )
            )
        return True

    def _fail(self, error: Exception) -> None:
        self._off = True
        self._part.guard.failed(PART, error)
        self._give_up("brackets failed")

    def _give_up(self, reason: str) -> None:
        devices, self._devices = self._devices, {}
        queues = [marks for device in devices.values() for marks in device.streams.values()]
        lost = sum(mark.begin is not None for marks in queues for mark in marks)
        if lost:
            self._part.drop(_DROP, reason, lost)


def open_brackets(part: Part, emit: Callable[[Device], None]) -> DeviceBrackets | None:
    """Brackets for this process; ``None`` when its torch has no device, so that nothing asks again.

    Raises `DeviceError` where there is a device that cannot be bracketed safely.
    """
    return None if find_layer() == NO_DEVICE else DeviceBrackets(part, emit)
