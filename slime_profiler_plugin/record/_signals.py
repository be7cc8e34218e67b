"""SIGTERM: flush, then end the process exactly as it would have ended without us.

A Python handler runs when the main thread next runs Python code. One that waits inside C code,
in a collective or for a mutex, would so outlive a SIGTERM that ends it without us. `SigtermWatch`
sees to that: such a process ends half a second later, its records written by another thread.
The price is a thread, and Python's wakeup descriptor, of which there is one; an event loop that
sets its own takes the watch's place, and then only the handler is left. Trio warns of a
descriptor that is set when it begins.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from ._sigterm_watch import SigtermWatch, die_of_sigterm


class SigtermFlush:
    """Our SIGTERM handler, where nobody else has one.

    Installed in the main thread only, and only over the default: an ignored signal stays
    ignored, and a handler that stands there, such as Ray's, is left alone; atexit covers it.
    """

    def __init__(
        self, flush: Callable[[], None], end: Callable[[], None], end_outside: Callable[[], None]
    ) -> None:
        """All must return within seconds and raise nothing; `end` is the last flush.

        `end_outside` is the same, called while the main thread may be inside anything.
        """
        self._flush = flush
        self._end = end
        self._end_outside = end_outside
        self._installed = False
        self._watch: SigtermWatch | None = None

    def install(self) -> None:
        """Take SIGTERM if it may be taken from the calling thread.

        Raises `OSError` or `RuntimeError` when it is taken, and cannot be watched.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        earlier = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
        if isinstance(earlier, SigtermFlush) and earlier is not self:
            earlier.remove()  # of a recording that was stopped in another thread, which cannot
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._handle)
            self._installed = True
            self._watch = SigtermWatch(self._main_is_blocked)

    def remove(self) -> None:
        """Give SIGTERM back, if it is still ours and this is the main thread."""
        if not self._installed or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._installed = False
        if self._watch is not None:
            self._watch.close()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._watch is not None:
            self._watch.handled()
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
        if self._watch is not None:  # it lives: the default spares process 1 of a container
            self._watch.close()

    def _main_is_blocked(self) -> None:
        if signal.getsignal(signal.SIGTERM) != self._handle:
            return  # that handler's author knows when it runs
        try:
            self._end_outside()
        finally:
            die_of_sigterm()
