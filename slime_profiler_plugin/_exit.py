"""How the command line ends when it is told to."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def orderly_exit() -> Iterator[None]:
    """SIGTERM and SIGHUP end the program as an exception would: what it has begun is tidied up.

    The exit code is that of a shell, 128 and the signal's number. Only where nobody else handles them, and
    only in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, lambda received, _frame: sys.exit(128 + received))
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
