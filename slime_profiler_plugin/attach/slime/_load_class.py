"""Where an actor gets its class: the one place at which slime's rollout manager can be wrapped.

It waits here in every Ray worker, so it is small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from slime_profiler_plugin.attach._targets import Target
from slime_profiler_plugin.attach._wrap import Bound

MANAGER_MODULE: Final = "slime.ray.rollout"
MANAGER_CLASS: Final = "RolloutManager"
LOAD_CLASS: Final = Target(
    "ray",
    "ray._private.function_manager",
    "FunctionActorManager._load_actor_class_from_gcs",
    ("self", "job_id", "actor_creation_function_descriptor"),
    ("eval", "generate", "convert_samples", "offload", "onload_weights", "onload_kv"),
)


def around_load_class(call: Callable[[], Any], bound: Bound) -> Any:
    """An actor has its class: if that is slime's manager, its methods are wrapped."""
    found = call()
    given = bound.args[2:] or (bound.kwargs["actor_creation_function_descriptor"],)
    if (given[0].module_name, given[0].class_name) == (MANAGER_MODULE, MANAGER_CLASS):
        from ._manager import wrap_methods

        wrap_methods(found)
    return found
