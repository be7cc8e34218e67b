"""Calls that wait for a module to be imported.

A finder stands first among Python's own while anything is waited for. It asks the others for the module's
spec and lends it a loader that calls back once the module's code has run: before the statement that imports
it binds any of its names.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._failures import FAILURE, failed, is_theirs

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

Callback = Callable[[ModuleType], None]

_waiting: dict[str, list[Callback]] = {}


class _Lock:
    """Of `_waiting` and the finder's place. A forked child has a new one: in it, a thread that held the old
    one does not exist, and its imports would wait for ever.
    """

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._own = threading.RLock()

    def __enter__(self) -> None:
        self._own.acquire()

    def __exit__(self, *_: object) -> None:
        self._own.release()


_lock = _Lock()


def after_import(name: str, callback: Callback) -> None:
    """Call `callback` with the module `name` once that has been imported; now, if it has been.

    One that raises is told once and counted; the import goes on.
    """
    with _lock:
        module = sys.modules.get(name)
        if module is None or _is_being_imported(module):
            _waiting.setdefault(name, []).append(callback)
            if _finder not in sys.meta_path:
                sys.meta_path.insert(0, _finder)
            return
    _call(callback, module)


def forget_all() -> None:
    """Wait for nothing any more; the finder goes."""
    with _lock:
        _waiting.clear()
        _leave()


def _is_being_imported(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _leave() -> None:
    if not _waiting and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def _call(callback: Callback, module: ModuleType) -> None:
    try:
        callback(module)
    except FAILURE as error:
        if is_theirs(error):
            raise
        failed(f"what waits for {module.__name__}", error)


def _call_all(module: ModuleType) -> None:
    with _lock:
        callbacks = _waiting.pop(module.__name__, [])
        _leave()
    for callback in callbacks:
        _call(callback, module)


class _Finder:  # not of importlib.abc, which takes 15 ms to import
    def __init__(self) -> None:
        self._thread = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _waiting:
            return None
        asking: set[str] = self._thread.__dict__.setdefault("asking", set())
        if name in asking:  # another finder asks the others as we do, and us among them
            return None
        asking.add(name)
        try:
            return self._ask_the_others(name, path, target)
        finally:
            asking.remove(name)

    def _ask_the_others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self:
                continue
            if find is None:
                if _finds_as_of_old(finder, name, path):
                    return None
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Lent(spec.loader)  # type: ignore[assignment]
                return spec
        return None


def _finds_as_of_old(finder: Any, name: str, path: Sequence[str] | None) -> bool:
    """Whether a finder from before Python 3.4 has the module, which Python then takes from it, unattached."""
    find = getattr(finder, "find_module", None) if sys.version_info < (3, 12) else None
    return find is not None and find(name, path) is not None


class _Lent:
    """Stands in for a module's own loader until the module's code runs; by `isinstance` it is that one."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._own)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        create = getattr(self._own, "create_module", None)
        return None if create is None else create(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Another finder may have put a loader of its own around this one: that stays what it is.
        if module.__spec__ is not None and module.__spec__.loader is self:  # type: ignore[comparison-overlap]
            module.__spec__.loader = self._own
        if module.__loader__ is self:
            module.__loader__ = self._own
        self._own.exec_module(module)
        _call_all(module)


_finder = _Finder()
