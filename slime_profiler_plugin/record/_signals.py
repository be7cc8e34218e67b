"""SIGTERM: flush, then end the process exactly as it would have ended without us."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


class SigtermFlush:
    """Our SIGTERM handler, where nobody else has one.

    Installed in the main thread only, and only over the default: an ignored signal stays
    ignored, and a handler that stands there, such as Ray's, is left alone; atexit covers it.
    """

    def __init__(self, flush: Callable[[], None], end: Callable[[], None]) -> None:
        """Both must return within seconds and raise nothing; `end` is the last flush."""
        self._flush = flush
        self._end = end
        self._installed = False

    def install(self) -> None:
        """Take SIGTERM if it may be taken from the calling thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._handle)
            self._installed = True

    def remove(self) -> None:
        """Give SIGTERM back, if it is still ours and this is the main thread."""
        if not self._installed or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._installed = False

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if signal.getsignal(signal.SIGTERM) != self._handle:
            # Called by a handler that came after ours. It would not have called the default,
            # which is no function, so the process may well go on.
            self._flush()
            return
        try:
            self._end()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
