"""A FAKE device layer: no accelerator, no torch, and time passes only when it is told to.

It stands in for torch's accelerator where none can be had, to exercise the logic of device
brackets. It shows nothing about a real device. It keeps the rules that a real one has and
that a mistake would break: streams run in order and on their own, an event's time is read
on the device's clock, coarsely and as a float32, only from an earlier to a later event that
were both reached; a query while anything is captured breaks the capture; recording on an
unused device opens a context there; and whoever synchronises is counted.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager

_CLOCK_READ_NS = 40


class FakeDeviceError(RuntimeError):
    """What a real device answers with an error."""


class FakeStream:
    """Work in order. `busy_until_ns` and `last_mark_ns`, the truth, are host times."""

    def __init__(self, stream_id: int, device_index: int = 0) -> None:
        self.stream_id = stream_id
        self.device_index = device_index
        self.busy_until_ns = 0
        self.last_mark_ns = 0


class FakeEvent:
    """A mark that is reached when its stream comes to it. `at_ns` is the truth, in host time."""

    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self.at_ns: int | None = None
        self.captured = False
        self.device_index: int | None = None

    def record(self, stream: FakeStream) -> None:
        """Put the mark behind what the stream has."""
        device = self._device
        if self.device_index not in (None, stream.device_index):
            raise FakeDeviceError("an event stays on the device it was first recorded on")
        if self.at_ns is not None and self.at_ns > device.host_ns:
            device.reused_too_soon += 1
        device.pass_ns(device.call_ns)
        self.device_index = stream.device_index
        self.captured = stream in device.capturing
        device.contexts.add(stream.device_index)
        self.at_ns = max(device.host_ns + device.latency_ns, stream.busy_until_ns)
        stream.busy_until_ns = stream.last_mark_ns = self.at_ns

    def query(self) -> bool:
        """Whether the mark was reached."""
        device = self._device
        device.queries += 1
        device.pass_ns(device.call_ns)
        device.check_query(self)
        return self.at_ns is None or self.at_ns <= device.host_ns

    def elapsed_time(self, other: FakeEvent) -> float:
        """Milliseconds to a later mark."""
        if not (self.query() and other.query()):
            raise FakeDeviceError("both events must have been reached")
        if self.at_ns is None or other.at_ns is None or self.device_index != other.device_index:
            raise FakeDeviceError("both events must be recorded, on one device")
        ticks = self._device.ticks_at(other.at_ns) - self._device.ticks_at(self.at_ns)
        if ticks < 0:
            raise FakeDeviceError("from a later event to an earlier one: some backends answer nonsense")
        return float(struct.unpack("f", struct.pack("f", ticks * self._device.resolution_ns / 1e6))[0])

    def synchronize(self) -> None:
        """Counted: nobody may."""
        self._device.synchronized += 1


class FakeDevice:
    """A layer for `DeviceBrackets`. Everything a test may look at or set is an attribute.

    `offset_ns` and `drift` (device seconds gained per host second, 1e-6 = 1 ppm) make the
    device's clock; `latency_ns` is how long an idle stream takes to reach a mark, `call_ns`
    what each call costs the host.
    """

    device_type = "fake"

    def __init__(
        self, *, offset_ns: int = 10**15, drift: float = 0.0, latency_ns: int = 2_000, call_ns: int = 1_000
    ) -> None:
        self.host_ns = 10**12
        self.latency_ns = latency_ns
        self.call_ns = call_ns
        self.resolution_ns = 500
        self._clock = [(self.host_ns, float(self.host_ns + offset_ns), 1.0 + drift)]
        self.current = FakeStream(0)
        self.streams_made: list[FakeStream] = []
        self.events: list[FakeEvent] = []
        self.capturing: set[FakeStream] = set()
        self.contexts = {0}
        self.queries = 0
        self.synchronized = 0
        self.broken_captures = 0
        self.reused_too_soon = 0
        self.error: Exception | None = None
        self._is_relaxed = False

    def now(self) -> int:
        """CLOCK_MONOTONIC of the fake's host."""
        self.pass_ns(_CLOCK_READ_NS)
        return self.host_ns

    def pass_ns(self, duration_ns: int) -> None:
        """Let time pass."""
        self.host_ns += duration_ns

    def set_drift(self, drift: float) -> None:
        """From now on the device's clock runs so."""
        self._clock.append((self.host_ns, self._device_ns(self.host_ns), 1.0 + drift))

    def ticks_at(self, host_ns: int) -> int:
        """The device's clock at a host time."""
        return math.floor(self._device_ns(host_ns) / self.resolution_ns)

    def _device_ns(self, host_ns: int) -> float:
        index = bisect_right(self._clock, host_ns, key=lambda piece: piece[0])
        host, device, rate = self._clock[max(0, index - 1)]
        return device + (host_ns - host) * rate

    def launch(self, stream: FakeStream, duration_ns: int) -> tuple[int, int]:
        """A kernel on `stream`; begin and end in host time."""
        self.pass_ns(self.call_ns)
        begin = max(self.host_ns + self.latency_ns, stream.busy_until_ns)
        stream.busy_until_ns = begin + duration_ns
        return begin, stream.busy_until_ns

    @contextmanager
    def on(self, stream: FakeStream) -> Iterator[None]:
        """Make `stream` the current one."""
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def capture(self, stream: FakeStream) -> Iterator[None]:
        """Capture `stream` into a graph, as some thread of the process."""
        self.capturing.add(stream)
        try:
            yield
        finally:
            self.capturing.discard(stream)

    def check_query(self, event: FakeEvent) -> None:
        """What a real device does to a query at the wrong moment."""
        if self.error is not None:
            raise self.error
        if event.captured or (self.capturing and not self._is_relaxed):
            self.broken_captures += 1
            raise FakeDeviceError("operation not permitted when a stream is capturing")

    def current_stream(self) -> FakeStream | None:
        """See `DeviceLayer`."""
        return self.current if self.current.device_index in self.contexts else None

    def is_capturing(self) -> bool:
        """See `DeviceLayer`."""
        return self.current in self.capturing

    def is_stream_capturing(self, stream: FakeStream) -> bool:
        """See `DeviceLayer`."""
        return stream in self.capturing

    def new_event(self) -> FakeEvent:
        """See `DeviceLayer`."""
        self.events.append(FakeEvent(self))
        return self.events[-1]

    def new_stream(self, device_index: int) -> FakeStream:
        """See `DeviceLayer`."""
        self.streams_made.append(FakeStream(1000 + len(self.streams_made), device_index))
        return self.streams_made[-1]

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """See `DeviceLayer`."""
        self._is_relaxed = True
        try:
            yield
        finally:
            self._is_relaxed = False
