"""Joins this process to its Ray job, once Ray is imported."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from slime_profiler_plugin.attach._wrap import Bound, wrap

from ._membership import Membership
from ._targets import CONNECT, DISCONNECT, LOAD_ACTOR_CLASS

_membership: Final = Membership()


def register() -> None:
    """Attach to Ray, now or when it is imported. Called where the environment switches recording on."""
    wrap(CONNECT, _around_connect)
    wrap(DISCONNECT, _around_disconnect)
    wrap(LOAD_ACTOR_CLASS, _around_load_actor_class)


def _around_connect(call: Callable[[], Any], _bound: Bound) -> Any:
    result = call()
    if _is_driver():
        _membership.join_as_driver()
    return result


def _around_disconnect(call: Callable[[], Any], _bound: Bound) -> Any:
    import ray

    # Called again at exit, when an explicit shutdown has been there before.
    if ray.is_initialized() and _is_driver():
        path = _membership.ray_file
        _membership.leave()
        if path is not None:
            from ._collect import collect, is_collected

            if is_collected(os.environ):
                collect(path)
    return call()


def _around_load_actor_class(call: Callable[[], Any], bound: Bound) -> Any:
    manager, *given = bound.args
    descriptor = given[1] if len(given) > 1 else bound.kwargs["actor_creation_function_descriptor"]
    # Also called for classes of others, whose handles come in: the first in an actor is its own.
    if not _membership.is_actor and not _is_driver() and not manager._worker.actor_id.is_nil():
        _membership.join_as_actor(descriptor.module_name)
    return call()


def _is_driver() -> bool:
    import ray

    return bool(ray._private.worker.global_worker.mode == ray.SCRIPT_MODE)
