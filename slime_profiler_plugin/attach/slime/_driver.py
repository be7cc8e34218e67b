"""Phases of the driver: the rollout that it is about, and having the engines read a checkpoint."""

from __future__ import annotations

from typing import Any

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.attach._wrap import Bound
from slime_profiler_plugin.phases import define_phase

from ._sync import Call, argument, reloading

define_phase("update_weights", roles=("driver",), doc="Wait until the trainers have sent the weights.")


def around_async_train(call: Call, bound: Bound) -> Any:
    """A rollout's training is asked for, of the actor or of the critic."""
    timeline.set_rollout(argument(bound, 1, "rollout_id"))
    return call()


def around_update(call: Call, _bound: Bound) -> Any:
    """All trainers are asked for a weight sync; over disk the driver has its part in it."""
    with timeline.phase("update_weights"), timeline.watch_sync():
        return call()


def around_reload(call: Call, bound: Bound) -> Any:
    """All engines read what the trainers have written."""
    if not timeline.on:
        return call()
    with reloading(str(argument(bound, 2, "weight_version"))):
        return call()
