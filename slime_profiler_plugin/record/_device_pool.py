"""Device events, used again and again: making one costs more than recording it."""

from __future__ import annotations

from ._device_layer import DeviceEvent, DeviceLayer


class EventPool:
    """Events of one device. An event belongs to the device it was first recorded on.

    Only an event that the device has reached may come back: recording one again moves it,
    and whoever still waited for it would read the new time.
    """

    def __init__(self, layer: DeviceLayer, cap: int) -> None:
        self._layer = layer
        self._cap = cap
        self._free: list[DeviceEvent] = []
        #: Events made so far; those not free are on their way.
        self.made = 0

    @property
    def free(self) -> int:
        """Events that can be taken without making one."""
        return len(self._free)

    def take(self) -> DeviceEvent | None:
        """A free event or a new one; ``None`` when as many as the cap are on their way."""
        if self._free:
            return self._free.pop()
        return self.take_over_cap() if self.made < self._cap else None

    def take_over_cap(self) -> DeviceEvent:
        """The same regardless of the cap, for anchors: without one, nothing ever comes back."""
        if self._free:
            return self._free.pop()
        self.made += 1
        return self._layer.new_event()

    def give(self, event: DeviceEvent) -> None:
        """Back, after `event.query()` was true."""
        self._free.append(event)
