"""Letting this thread query events while another one captures a graph.

While any thread captures in the default mode, ``cudaEventQuery`` is forbidden to all
threads, and one call ends the capture with an error: the program's own failure. A thread
may say that it stays clear of what is captured ("relaxed"). torch's allocator does the same
around the queries it makes. torch has no name for it, the driver has, and it is loaded.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import TracebackType
from typing import Any, Final

_RELAXED: Final = 2
#: Library that may be loaded, and its function, in the order they are looked for.
_EXCHANGES: Final = (
    ("libcuda.so", "cuThreadExchangeStreamCaptureMode"),
    ("libamdhip64.so", "hipThreadExchangeStreamCaptureMode"),
)


class CaptureMode:
    """Context manager: relaxed inside, what it was before outside. For one thread at a time."""

    __slots__ = ("_exchange", "_mode")

    def __init__(self, exchange: Any) -> None:
        self._exchange = exchange
        self._mode = ctypes.c_int(_RELAXED)

    def __enter__(self) -> None:
        self._mode.value = _RELAXED
        self._swap()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._swap()

    def _swap(self) -> None:
        status = self._exchange(ctypes.byref(self._mode))
        if status != 0:
            raise OSError(f"the driver refused the capture mode: error {status}")


def find_capture_mode(maps: Path = Path("/proc/self/maps")) -> CaptureMode | None:
    """The mode switch of the driver this process has loaded; ``None`` where there is none."""
    loaded = {line.split(maxsplit=5)[-1].strip() for line in maps.read_text().splitlines() if "/" in line}
    for library, function in _EXCHANGES:
        for path in sorted(loaded):
            if not Path(path).name.startswith(library):
                continue
            # PyDLL keeps the interpreter lock: the call is shorter than handing that on.
            exchange = getattr(ctypes.PyDLL(path), function, None)
            if exchange is not None:
                return CaptureMode(exchange)
    return None
