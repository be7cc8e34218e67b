"""SIGTERM while the main thread is inside C code, where no Python handler runs.

Python's C handler writes the number of each signal to its wakeup descriptor at once, whatever
the main thread does. A thread of ours reads it there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from ._descriptors import Descriptor
from ._threads import new_thread, start_thread

#: How long the main thread may take to come to the Python handler, in seconds.
GRACE_S: Final = 0.5
_STOP: Final = b"\0"  # the number of no signal
_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid
#: Out of the way of programs that close "all" descriptors and use the numbers again: Python
#: would write signal numbers into their files.
_HIGH: Final = 900


class SigtermWatch:
    """Calls `blocked` in a thread of its own when the main thread does not handle a SIGTERM.

    Made and closed in the main thread. Where the wakeup descriptor is set already, by an event
    loop, it stays theirs and nothing is watched; so it is from when one sets it later.
    """

    def __init__(self, blocked: Callable[[], None]) -> None:
        """Raises `OSError`, and `RuntimeError` when no thread can be started."""
        self._blocked = blocked
        self._pid = os.getpid()
        self._handled: SimpleQueue[None] = SimpleQueue()
        reader, writer = socket.socketpair()
        with reader, writer:
            # A forked child has the same socket until it closes it: it says who writes.
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            writer.setblocking(False)
            lowest = max(3, min(_HIGH, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
            self._reader = Descriptor(os.dup(reader.fileno()), lowest)
            self._writer = Descriptor(os.dup(writer.fileno()), lowest)
        before = signal.set_wakeup_fd(self._writer.fd, warn_on_full_buffer=False)
        self.watching = before == -1
        if not self.watching:
            signal.set_wakeup_fd(before)
            self._reader.close()
            self._writer.close()
            return
        try:
            start_thread(new_thread(self._watch, "slime_profiler_sigterm"))
        except RuntimeError:
            self.close()
            self._reader.close()
            raise

    def handled(self) -> None:
        """The Python handler runs: the main thread is not blocked. May be called in it."""
        self._handled.put(None)

    def close(self) -> None:
        """End the thread and give the wakeup descriptor back, if it is still ours. Main thread only."""
        if not self.watching:
            return
        self.watching = False
        current = signal.set_wakeup_fd(-1)
        if current not in (-1, self._writer.fd):
            signal.set_wakeup_fd(current)
        if self._writer.ours:
            with contextlib.suppress(OSError):  # full: it ends when nobody can write any more
                os.write(self._writer.fd, _STOP)
        self._writer.close()
        if os.getpid() != self._pid:  # a forked child, without the thread
            self._reader.close()

    def _watch(self) -> None:
        reader = socket.socket(fileno=self._reader.fd)
        try:
            while self._reader.ours:
                numbers, pid = _receive(reader)
                if not numbers or (pid == self._pid and _STOP in numbers):
                    break
                if pid == self._pid and signal.SIGTERM in numbers and not self._is_handled():
                    self._blocked()
        except OSError:  # it was closed behind our back
            pass
        finally:
            reader.detach()
            self._reader.close()

    def _is_handled(self) -> bool:
        try:
            self._handled.get(timeout=GRACE_S)
        except Empty:
            return False
        return True


def die_of_sigterm() -> None:
    """End the process by SIGTERM's default action. Callable from any thread."""
    set_action = ctypes.CDLL(None).signal  # Python's works in the main thread only
    set_action.argtypes, set_action.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    set_action(signal.SIGTERM, int(signal.SIG_DFL))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.kill(os.getpid(), signal.SIGTERM)


def _receive(reader: socket.socket) -> tuple[bytes, int]:
    """What was written, and the process that did."""
    data, ancillary, _, _ = reader.recvmsg(4096, socket.CMSG_SPACE(_CREDENTIALS.size))
    for level, kind, credentials in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return data, _CREDENTIALS.unpack(credentials[: _CREDENTIALS.size])[0]
    return data, 0
