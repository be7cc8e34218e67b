"""Device-event brackets: what a stream did between the two ends of a phase.

At each end of a phase an event is recorded on the current stream. Nothing ever waits for
it. On the thread that ends a phase, a few marks that the device has reached meanwhile are
placed on the host's clock (`DeviceClock`), and a bracket whose two marks are placed is
emitted. No thread of our own touches the device.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from slime_profiler_plugin.schema import Device

from ._device_layer import NO_DEVICE, DeviceLayer, DeviceStream, find_layer
from ._device_marks import DeviceMarks, Mark
from ._guard import FAILURE, is_theirs

PART: Final = "device_events"
#: Events per device that may be on their way: two for each bracket.
CAP: Final = 20_000
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


class Handle:
    """A bracket whose phase is running."""

    __slots__ = ("begin", "stream")

    def __init__(self, begin: Mark, stream: DeviceStream) -> None:
        self.begin = begin
        self.stream = stream


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
        self._devices: dict[int, DeviceMarks] = {}

    @property
    def pending(self) -> int:
        """Marks that were recorded and are not placed yet."""
        return sum(device.pending for device in list(self._devices.values()))

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
                index = stream.device_index
                device = self._devices.get(index)
                if device is None:
                    device = DeviceMarks(layer, index, self._cap, self._now, self._emit)
                    self._devices[index] = device
                mark = device.record(stream)
            finally:
                self._lock.release()
            if isinstance(mark, str):
                self._part.drop(_DROP, mark)
                return None
            return Handle(mark, stream)
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
                device = self._devices.get(stream.device_index)
                if device is None:  # another thread has closed the brackets
                    return
                mark = device.record(stream, handle.begin, phase_id)
                device.collect_some()
            finally:
                self._lock.release()
            if isinstance(mark, str):
                self._part.drop(_DROP, mark)
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

    def _emit_reached(self) -> None:
        layer = self._layer
        if self._off or layer is None:
            return
        try:
            if layer.is_capturing() or not self._enter():
                return
            try:
                for device in self._devices.values():
                    device.collect_all()
            finally:
                self._lock.release()
        except FAILURE as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if is_theirs(error):
            raise error
        self._off = True
        self._part.guard.failed(PART, error)
        self._give_up("brackets failed")

    def _give_up(self, reason: str) -> None:
        devices, self._devices = self._devices, {}
        lost = sum(device.pending_brackets for device in devices.values())
        if lost:
            self._part.drop(_DROP, reason, lost)


def open_brackets(part: Part, emit: Callable[[Device], None]) -> DeviceBrackets | None:
    """Brackets for this process; ``None`` when its torch has no device, so that nothing asks again.

    Raises `DeviceError` where there is a device that cannot be bracketed safely.
    """
    return None if find_layer() == NO_DEVICE else DeviceBrackets(part, emit)
