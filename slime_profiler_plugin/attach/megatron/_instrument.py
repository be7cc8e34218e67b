"""Attaching Megatron: the public call, and what the autoload does."""

from __future__ import annotations

import sys
from typing import Any

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.attach._failures import FAILURE, failed, is_theirs
from slime_profiler_plugin.attach._wrap import wrap

from ._functions import HOOKS
from ._lend import configs_of, place
from ._ranks import tell_ranks


def register() -> None:
    """Have Megatron's functions wrapped: at once, where it is imported, else as soon as it is."""
    for hook in HOOKS:
        wrap(hook.target, hook.around)


def _register_imported() -> None:
    """Of a program that calls us itself: what it uses is there by then, and no import is watched."""
    for hook in HOOKS:
        if hook.target.module in sys.modules:
            wrap(hook.target, hook.around)


def instrument(config: Any, optimizer: Any = None, *, log_level: int = 2) -> bool:
    """Record what Megatron does as phases of this process.

    `config`: the model's configuration (``ModelParallelConfig``), or a list of them where each
    chunk of the model has its own. `optimizer`: what ``get_megatron_optimizer`` returned, also
    where it is a chain. `log_level`: 2 records each micro-batch and each send and receive, 1
    the parts of a step, 0 none of Megatron's timers.

    Call it after ``timeline.start()``, once the optimizer is made and before the first step.
    Returns whether it has: while the timeline is off nothing is touched. Only observes: no
    collective is added, left out or moved, and timers that are there already go on. Calling
    it again is harmless. Never raises a failure of ours; such a part is off, with one warning.
    """
    if not timeline.on:
        return False
    try:
        _register_imported()
        tell_ranks()
        for one in [*(config if isinstance(config, (list, tuple)) else [config]), *configs_of(optimizer)]:
            place(one, log_level)
    except FAILURE as error:
        if is_theirs(error):
            raise
        failed("megatron", error)
        return False
    return True
