"""The end of a child of `multiprocessing`, which leaves without running exit hooks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

#: After the program's own finalizers, which may still record: the highest goes first.
_LAST: Final = -1_000_000


class ChildEnd:
    """Has `end` called when this process ends, where it is a child that ends by ``os._exit``."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._finalizer: Any = None

    def install(self) -> None:
        """Nothing where `multiprocessing` is not loaded, or did not start this process."""
        process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
        if self._finalizer is not None or process is None or util is None:
            return
        if process.parent_process() is not None:
            self._finalizer = util.Finalize(None, self._end, exitpriority=_LAST)

    def remove(self) -> None:
        """It has ended otherwise."""
        finalizer, self._finalizer = self._finalizer, None
        if finalizer is not None:
            finalizer.cancel()
