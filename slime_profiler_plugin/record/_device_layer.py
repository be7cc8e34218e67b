"""What device brackets ask of a device: its interface, and torch's answer to it.

torch is never imported here: brackets begin when the program has loaded and initialised it.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol

from ._capture_mode import find_capture_mode


class DeviceError(RuntimeError):
    """Brackets cannot be had safely here; the message says why."""


class DeviceStream(Protocol):
    """A stream: work on it happens in order."""

    @property
    def stream_id(self) -> int:
        """Unique on its device."""

    @property
    def device_index(self) -> int:
        """The device it belongs to."""


class DeviceEvent(Protocol):
    """A mark on a stream that the device stamps with its own clock."""

    def record(self, stream: Any) -> None:
        """Put the mark behind the work that `stream` has now."""

    def query(self) -> bool:
        """Whether the device has come to the mark. Returns at once."""

    def elapsed_time(self, other: Any) -> float:
        """Milliseconds from this mark to `other`, both reached, this one first."""


class DeviceLayer(Protocol):
    """The accelerator of this process, as far as brackets need it. No call waits."""

    device_type: str

    def current_stream(self) -> DeviceStream | None:
        """The calling thread's, or ``None`` on a device this process does not use (yet)."""

    def is_capturing(self) -> bool:
        """Whether the calling thread's current stream is being captured into a graph."""

    def is_stream_capturing(self, stream: Any) -> bool:
        """The same for a given stream."""

    def new_event(self) -> DeviceEvent:
        """An event with timing; it belongs to the device it is first recorded on."""

    def new_stream(self, device_index: int) -> DeviceStream:
        """A stream besides those the program computes on."""

    def relaxed(self) -> AbstractContextManager[object]:
        """Inside, queries of this thread break no capture of any thread."""


#: The answer of `find_layer` where no bracket will ever be possible in this process.
NO_DEVICE: Final = "no device"


def find_layer() -> DeviceLayer | str | None:
    """torch's accelerator once the program has initialised it, ``None`` until then.

    `NO_DEVICE` where this torch has none or cannot tell. Initialises nothing: asking torch
    whether a device is *available* would, and would break processes forked later. Raises
    `DeviceError` where there is a device that cannot be bracketed safely.
    """
    torch: Any = sys.modules.get("torch")
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None or not hasattr(torch, "Event"):
        # Not loaded, still loading, or older than torch 2.6, where brackets never begin.
        return None
    device = accelerator.current_accelerator()
    if device is None:
        return NO_DEVICE
    module = torch.get_device_module(device.type)
    is_initialized = getattr(module, "is_initialized", None)
    if is_initialized is None:
        return NO_DEVICE
    return TorchLayer(torch, device.type, module) if is_initialized() else None


class TorchLayer:
    """torch's accelerator of one type: cuda (ROCm too), xpu, npu, musa."""

    def __init__(self, torch: Any, device_type: str, module: Any) -> None:
        self.device_type = device_type
        self._torch = torch
        self._module = module
        self._current_stream = torch.accelerator.current_stream
        self._used: set[int] = set()
        self.is_capturing = getattr(module, "is_current_stream_capturing", _never)
        self._mode: AbstractContextManager[object] = nullcontext()
        if device_type == "cuda":
            mode = find_capture_mode()
            if mode is None:
                raise DeviceError("the driver's capture mode cannot be set, so a query could break a capture")
            self._mode = mode

    def current_stream(self) -> DeviceStream | None:
        """See `DeviceLayer`."""
        stream = self._current_stream()
        index = stream.device_index
        if index in self._used:
            return stream  # type: ignore[no-any-return]
        if not self._is_used(index):
            return None
        self._used.add(index)
        return stream  # type: ignore[no-any-return]

    def is_stream_capturing(self, stream: Any) -> bool:
        """See `DeviceLayer`."""
        if self.is_capturing is _never:
            return False
        with self._module.stream(stream):
            return bool(self.is_capturing())

    def new_event(self) -> DeviceEvent:
        """See `DeviceLayer`."""
        return self._torch.Event(device=self.device_type, enable_timing=True)  # type: ignore[no-any-return]

    def new_stream(self, device_index: int) -> DeviceStream:
        """See `DeviceLayer`."""
        return self._torch.Stream(device=f"{self.device_type}:{device_index}")  # type: ignore[no-any-return]

    def relaxed(self) -> AbstractContextManager[object]:
        """See `DeviceLayer`."""
        return self._mode

    def _is_used(self, index: int) -> bool:
        """Whether the process has a context on device `index`.

        Recording there would open one: hundreds of megabytes on what may be another rank's
        device, since a thread that never chose a device stands on the first.
        """
        has_context = getattr(self._torch._C, "_cuda_hasPrimaryContext", None)
        if has_context is not None and self.device_type == "cuda":
            return bool(has_context(index))
        return bool(self._module.memory_reserved(index) > 0)


def _never() -> bool:
    return False
