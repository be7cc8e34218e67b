"""What slime asks of torch_memory_saver, where no memory of a GPU can be given back: nothing is moved."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

# slime looks for the library to preload beside the package; an empty file is one that the loader ignores.
__file__ = os.path.join(os.environ.get("SLIME_TESTS_RAY", ""), "torch_memory_saver", "__init__.py")


class _MemorySaver:
    _impl = None

    def pause(self, *_args: Any) -> None: ...

    def resume(self, *_args: Any) -> None: ...

    def get_cpu_backup(self, _tensor: Any, **_more: Any) -> None: ...

    @contextlib.contextmanager
    def disable(self, *_args: Any, **_more: Any) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def region(self, *_args: Any, **_more: Any) -> Iterator[None]:
        yield


torch_memory_saver = _MemorySaver()
