"""Threads of ours, which the program's signals and trace functions do not reach."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from operator import methodcaller
from typing import Any, Final

#: A crash of the thread itself, which `faulthandler` is to report.
_FAULTS: Final = frozenset(
    {
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)


def new_thread(body: Callable[[], None], name: str) -> threading.Thread:
    """A daemon thread that is not traced or profiled, whatever ``threading.settrace`` was told.

    A trace function is called before the first line of what the thread runs, and one that raises
    ends the thread there. So what runs first is no Python code: it takes the function off.
    """
    steps = (partial(sys.settrace, None), partial(sys.setprofile, None), body)
    thread = threading.Thread(name=name, daemon=True)
    run: Any = partial(list, map(methodcaller("__call__"), steps))
    thread.run = run  # type: ignore[method-assign]
    return thread


def start_thread(thread: threading.Thread) -> None:
    """Start it with all signals blocked. Raises `RuntimeError` when there can be no more threads."""
    with signals_blocked():
        thread.start()


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Threads that are started inside block all signals; nvtx imports numpy, whose BLAS starts some.

    The kernel gives a signal to any thread that does not block it. The program may block one in
    all of its threads, to wait for it or to finish something first, and knows nothing of ours.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:  # blocking them runs the handlers of those that came before, which may raise
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
