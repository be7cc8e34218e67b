"""Wrappers around functions that one module reaches through another, as ``dist.barrier()``.

Wrapping ``torch.distributed.barrier`` itself would be everybody's. Here a view of the other module takes its
place in the namespace of the one: one name is ours there, all others are the module's own at each look.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ._after_import import after_import
from ._targets import Target, check_target
from ._wrap import Around, remember_placed, remember_state, wrapped


class ModuleView:
    """Stands for `module`, but for the names that were put into it."""

    def __init__(self, module: ModuleType) -> None:
        vars(self)["_module"] = module

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_module"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(vars(self)["_module"], name, value)

    def __dir__(self) -> list[str]:
        return dir(vars(self)["_module"])


def wrap_reached(target: Target, around: Around) -> None:
    """Like `wrap`, of a target whose name is ``module.function``: only calls of `target.module` are wrapped.

    The function is looked up in its own module at each call: what others put there later is called.
    """

    def place(module: ModuleType) -> None:
        state = check_target(target, module)
        remember_state(state)
        if state.status == "attached":
            _place(target, around, module)

    after_import(target.module, place)


def _place(target: Target, around: Around, module: ModuleType) -> None:
    through, _, name = target.name.partition(".")
    found = getattr(module, through)
    view = found
    if not isinstance(found, ModuleView):
        view = ModuleView(found)
        setattr(module, through, view)
        remember_placed(module, through, view, found)

    def reached(*args: Any, **kwargs: Any) -> Any:
        return getattr(vars(view)["_module"], name)(*args, **kwargs)

    vars(view)[name] = wrapped(reached, around, f"{target.module}.{target.name}")
