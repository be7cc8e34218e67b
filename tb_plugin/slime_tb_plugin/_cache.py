"""Answers that are kept as long as the files they were made from stay what they were."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable


class Cache:
    """The answers asked for last, at most `most` bytes of them. What several ask for at once is made once.

    The identity of the files belongs into the key. What raises is not kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, bytes] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """The answer of `key`, made by `make` where it is not there."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            turn = self._making.setdefault(key, threading.Lock())
        with turn:
            with self._lock:
                if key in self._values:
                    return self._values[key]
            try:
                value = make()
                with self._lock:
                    self._keep(key, value)
            finally:
                with self._lock:
                    self._making.pop(key, None)
        return value

    def _keep(self, key: Hashable, value: bytes) -> None:
        self._values[key] = value
        self._size += len(value)
        while self._size > self._most:
            _, oldest = self._values.popitem(last=False)
            self._size -= len(oldest)
