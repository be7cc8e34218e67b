"""Compresses trace files behind the training thread's back."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from isal import isal_zlib

from ._threads import new_thread, start_thread

#: isal lets go of the interpreter lock while it works on a block; large blocks mean few
#: fights over the lock. 264 MB cost 0.4 s of this thread, and the training thread no more
#: than a few hand-overs of the lock per block.
_BLOCK_BYTES: Final = 8_000_000
_LEVEL: Final = 1
#: Time to finish the block in hand after giving up; a hanging file system gets no more.
_LAST_BLOCK_S: Final = 1.0
_GZIP_WINDOW: Final = 31


class Compressor:
    """Turns ``X.json`` into ``X.json.gz``, one at a time, in a thread that lives as long as there is work.

    `lost(reason)` is called, on that thread, for a file that could not be compressed; it
    stays as it was.
    """

    def __init__(self, lost: Callable[[str], None]) -> None:
        self._lost = lost
        self._waiting: deque[Path] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._give_up = threading.Event()

    def add(self, path: Path) -> None:
        """Compress the file at `path` and remove it afterwards."""
        with self._lock:
            self._waiting.append(path)
            if self._thread is None:
                self._thread = new_thread(self._run, "slime_profiler_compress")
                start_thread(self._thread)

    def close(self, timeout_s: float) -> bool:
        """Wait for what is waiting, `timeout_s` at most; then leave the rest uncompressed.

        Returns whether everything was compressed; at once when this is called in the thread itself.
        """
        with self._lock:
            thread = self._thread
        if thread is None:
            return True
        if thread is threading.current_thread():
            return False
        thread.join(timeout_s)
        if not thread.is_alive():
            return True
        self._give_up.set()
        thread.join(_LAST_BLOCK_S)
        return False

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or self._give_up.is_set():
                    self._thread = None
                    return
                path = self._waiting.popleft()
            try:
                compress_file(path, self._give_up.is_set)
            except OSError as error:
                self._lost(f"a trace stays uncompressed: {error.strerror or error}")


def compress_file(path: Path, give_up: Callable[[], bool]) -> None:
    """Write ``path.gz`` and remove `path`; until it is whole it is called ``path.gz.tmp``.

    When `give_up` says so, `path` stays and nothing is written. Raises `OSError`.
    """
    final = path.with_name(path.name + ".gz")
    temporary = path.with_name(path.name + ".gz.tmp")
    squeeze = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP_WINDOW)
    try:
        with path.open("rb") as source, temporary.open("wb") as target:
            while block := source.read(_BLOCK_BYTES):
                if give_up():
                    return
                target.write(squeeze.compress(block))
            target.write(squeeze.flush())
        os.replace(temporary, final)
        path.unlink()
    finally:
        temporary.unlink(missing_ok=True)
