"""Puts the plugin's timers into a configuration of Megatron's, for good or for one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from slime_profiler_plugin.attach._failures import FAILURE, failed, is_theirs

from ._timers import Finalize, Timers

T = TypeVar("T")


def place(config: Any, log_level: int = 2) -> list[tuple[Any, str, Any, Any]]:
    """Put `Timers` and `Finalize` into `config`, around what it has; returns what changed.

    That is (config, name, before, now) of each. What a configuration lacks, or has from us
    already, stays as it is.
    """
    changed = []
    timers = getattr(config, "timers", None)
    if hasattr(config, "timers") and not isinstance(timers, Timers):
        now: Any = Timers(timers, log_level)
        config.timers = now
        changed.append((config, "timers", timers, now))
    finalize = getattr(config, "finalize_model_grads_func", None)
    if finalize is not None and not isinstance(finalize, Finalize):
        now = Finalize(finalize)
        config.finalize_model_grads_func = now
        changed.append((config, "finalize_model_grads_func", finalize, now))
    return changed


def lend(configs: Callable[[], Iterable[Any]], call: Callable[[], T]) -> T:
    """The result of `call`, during which the configurations have our timers.

    slime takes the timers out of the configuration before each use, so they are put in where
    they are read. What the program itself puts there meanwhile stays.
    """
    changed: list[tuple[Any, str, Any, Any]] = []
    try:
        for config in configs():
            changed += place(config)
    except FAILURE as error:
        if is_theirs(error):
            take_back(changed)
            raise
        failed("megatron timers", error)
    try:
        return call()
    finally:
        take_back(changed)


def take_back(changed: list[tuple[Any, str, Any, Any]]) -> None:
    """Undo what `place` changed, where nobody else has changed it since. Never raises a failure of ours."""
    try:
        for config, name, before, now in reversed(changed):
            if getattr(config, name, None) is now:
                setattr(config, name, before)
    except FAILURE as error:
        if is_theirs(error):
            raise
        failed("megatron timers", error)


def configs_of(optimizer: Any) -> list[Any]:
    """The configurations of an optimizer and of those it is a chain of."""
    parts = [optimizer, *(getattr(optimizer, "chained_optimizers", None) or ())]
    return [part.config for part in parts if getattr(part, "config", None) is not None]
