"""Three modules of Megatron import Triton, a gigabyte, for kernels that a CPU never runs.

While those modules are imported, and no longer, a stand-in is there: torch would take it for the real one.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

NEED_IT = (
    "megatron.core.inference.contexts.attention_context.triton.tensor_ops",
    "megatron.core.inference.contexts.fused_kv_append_kernel",
    "megatron.core.transformer.custom_layers.batch_invariant_kernels",
)


class _Language(ModuleType):
    """Whatever stands in annotations and constants of kernels."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


def _as_it_is(function: Any = None, **_options: Any) -> Any:
    return (lambda later: later) if function is None else function


@contextlib.contextmanager
def stand_in() -> Iterator[None]:
    if "triton" in sys.modules:  # another of the three is being imported
        yield
        return
    language, triton = _Language("triton.language"), ModuleType("triton")
    triton.language, triton.jit = language, _as_it_is  # type: ignore[attr-defined]
    triton.autotune = triton.heuristics = lambda *_, **__: _as_it_is  # type: ignore[attr-defined]
    triton.Config = lambda *_, **__: None  # type: ignore[attr-defined]
    triton.__version__ = "0.0"  # type: ignore[attr-defined]
    sys.modules.update({"triton": triton, "triton.language": language})
    try:
        yield
    finally:
        del sys.modules["triton"], sys.modules["triton.language"]
