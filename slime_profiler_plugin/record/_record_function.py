"""torch's ``record_function``, only where a profiler listens.

A bare ``record_function`` costs about ten times a phase even when no profiler is active, so
it is entered only while this thread has one. Kineto decides per thread too. torch is never
imported by us: it is looked for among the modules that the program has loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

#: Says whether this thread has a profiler, in 30 ns. Private to torch, so probed for.
_ACTIVE: Final = "_profiler_enabled"
#: The C pair behind ``record_function``: a third of its price, and like it a
#: ``user_annotation`` in the trace, which ``_RecordFunctionFast`` is not.
_ENTER: Final = "_record_function_with_args_enter"
_EXIT: Final = "_record_function_with_args_exit"


class RecordFunction:
    """How to ask and how to annotate, with what the loaded torch offers."""

    def __init__(self, torch: Any, *, gated: bool) -> None:
        autograd = torch._C._autograd
        #: Whether to annotate in this thread now.
        self.active: Callable[[], bool] = _always
        if gated:
            # Without the private check: the profiler module's own flag, which is per process.
            profiler = torch.autograd.profiler
            self.active = getattr(autograd, _ACTIVE, lambda: bool(profiler._is_profiler_enabled))
        if hasattr(autograd, _ENTER) and hasattr(autograd, _EXIT):
            self.enter: Callable[[str], Any] = getattr(autograd, _ENTER)
            self.exit: Callable[[Any], object] = getattr(autograd, _EXIT)
        else:
            public = torch.profiler.record_function

            def enter(name: str) -> Any:
                annotation = public(name)
                annotation.__enter__()
                return annotation

            self.enter = enter
            self.exit = lambda annotation: annotation.__exit__(None, None, None)


def _always() -> bool:
    return True


def loaded_torch() -> Any | None:
    """torch, when the program has imported it and the import has got as far as its profiler."""
    torch = sys.modules.get("torch")
    if (
        torch is None
        or getattr(torch, "profiler", None) is None
        or "torch.autograd.profiler" not in sys.modules
    ):
        return None
    return torch
