"""Places all hooks."""

from __future__ import annotations

from slime_profiler_plugin.attach._reached import wrap_reached
from slime_profiler_plugin.attach._slime_arguments import wait_for_slime_arguments
from slime_profiler_plugin.attach._wrap import wrap

from ._hooks import REACHED, WRAPPED


def register() -> None:
    """Wrap what is in `TARGETS`, as its modules are imported. Called where recording is switched on."""
    wait_for_slime_arguments()
    for target, around in WRAPPED.items():
        wrap(target, around)
    for target, around in REACHED.items():
        wrap_reached(target, around)
