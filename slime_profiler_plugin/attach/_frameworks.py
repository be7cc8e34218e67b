"""The frameworks there is something to attach to."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from types import ModuleType
from typing import Final

from ._failures import FAILURE, failed, is_theirs
from ._targets import Target

#: A module here each, with `TARGETS` and ``register()``, which imports no framework.
_NAMES: Final = ("torch_distributed", "megatron", "ray", "sglang", "slime")


def attach_all() -> None:
    """Attach to each framework, now or when this process imports it. Never raises.

    A framework whose part fails is told once and left alone.
    """
    for module in _modules():
        _register(module)


def targets() -> tuple[Target, ...]:
    """Everything that is wrapped, of all frameworks."""
    return tuple(target for module in _modules() for target in module.TARGETS)


def _register(module: ModuleType) -> None:
    try:
        module.register()
    except FAILURE as error:
        if is_theirs(error):
            raise
        failed(module.__name__.rpartition(".")[2], error)


def _modules() -> Iterator[ModuleType]:
    for name in _NAMES:
        full = f"{__package__}.{name}"
        if importlib.util.find_spec(full) is not None:
            yield importlib.import_module(full)
