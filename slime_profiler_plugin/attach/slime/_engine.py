"""The Ray actor that starts an engine and speaks HTTP to it."""

from __future__ import annotations

import os
from typing import Any

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.attach._wrap import Bound
from slime_profiler_plugin.attach.sglang import INDEX_VARIABLE

from ._sync import Call, argument


def around_make(call: Call, bound: Bound) -> Any:
    """The actor learns its rank; an engine over several nodes has one on each."""
    timeline.start(role="engine_client", rank=argument(bound, 2, "rank"))
    return call()


def around_init(call: Call, bound: Bound) -> Any:
    """The engine is started: its processes inherit which of the engines it is."""
    client = bound.args[0]
    os.environ[INDEX_VARIABLE] = str(engine_index(client.rank, client.args, client.num_gpus_per_engine))
    return call()


def engine_index(rank: int, arguments: Any, gpus: int | None) -> int:
    """Which engine the actor of that rank is a node of. `gpus`: of the engine, if it says so itself.

    >>> from types import SimpleNamespace
    >>> arguments = SimpleNamespace(num_gpus_per_node=8, rollout_num_gpus_per_engine=16)
    >>> [engine_index(rank, arguments, None) for rank in range(4)], engine_index(3, arguments, 4)
    ([0, 0, 1, 1], 3)
    """
    nodes = max(1, (gpus or arguments.rollout_num_gpus_per_engine) // arguments.num_gpus_per_node)
    return int(rank // nodes)


def around_request(call: Call, bound: Bound) -> Any:
    """A request, until it is answered."""
    if getattr(bound.args[0], "node_rank", 0):
        return call()  # another node's actor asks
    payload = argument(bound, 2, "payload")
    fields = {"endpoint": str(argument(bound, 1, "endpoint"))}
    version = payload.get("weight_version") if isinstance(payload, dict) else None
    if version is not None:
        fields["weight_version"] = str(version)
    with timeline.phase("engine_request", **fields):
        return call()
