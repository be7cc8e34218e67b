"""Waiting until somebody ends the program."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that is set by Ctrl-C and by SIGTERM, which end nothing meanwhile.

    One that is ignored, as a shell does for programs in the background, stays so. Only in the main thread:
    raises `ValueError` elsewhere.
    """
    stop = threading.Event()
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    # `None` is a handler that is not Python's, and could not be put back.
    before = {n: handler for n, handler in handlers.items() if handler not in (None, signal.SIG_IGN)}
    for number in before:
        signal.signal(number, lambda *_: stop.set())
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
