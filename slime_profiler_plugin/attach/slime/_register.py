"""Places all hooks, once slime is imported: a process without it imports no more than this."""

from __future__ import annotations

from types import ModuleType

from slime_profiler_plugin.attach._after_import import after_import
from slime_profiler_plugin.attach._slime_arguments import wait_for_slime_arguments
from slime_profiler_plugin.attach._wrap import wrap

from ._load_class import LOAD_CLASS, around_load_class


def register() -> None:
    """Wrap what is in `TARGETS`, as its modules are imported. Called where recording is switched on."""
    wait_for_slime_arguments()
    wrap(LOAD_CLASS, around_load_class)
    after_import("slime", _place)


def _place(_slime: ModuleType) -> None:
    from slime_profiler_plugin.attach._reached import wrap_reached

    from ._hooks import REACHED, WRAPPED

    for target, around in WRAPPED.items():
        wrap(target, around)
    for target, around in REACHED.items():
        wrap_reached(target, around)
