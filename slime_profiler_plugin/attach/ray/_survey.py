"""A program: asks every node of a Ray cluster what a worker finds there, and prints it as JSON.

It runs in a process of its own, which `_cluster` ends when it takes too long: nothing that a dead node or
cluster does can hold the one who asks.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import _look


def main() -> None:
    """Reads an object with ``address env_vars autoload connect_s timeout_s``, prints a list, one per node."""
    asked = json.load(sys.stdin)
    import ray
    from ray import cloudpickle
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # By value: the node that is asked may have no package of ours, which is what we want to hear.
    register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    register(_look)
    give_up = threading.Timer(asked["connect_s"], _give_up, (asked["connect_s"],))
    give_up.daemon = True
    give_up.start()
    ray.init(address=asked["address"], log_to_driver=False, logging_level=logging.ERROR)
    give_up.cancel()
    # The job's own environment stands where it names the same variables.
    runtime_env = {"env_vars": asked["env_vars"]} if asked["env_vars"] else None
    look = ray.remote(_look.look)
    list_nodes: Callable[[], list[dict[str, Any]]] = ray.nodes
    nodes = [node for node in list_nodes() if node["Alive"]]
    answers = [
        look.options(
            num_cpus=0,
            max_retries=0,
            runtime_env=runtime_env,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        ).remote(asked["autoload"])
        for node in nodes
    ]
    deadline = time.monotonic() + asked["timeout_s"]
    told = []
    for node, answer in zip(nodes, answers, strict=True):
        found: dict[str, object] = {"node_id": node["NodeID"], "address": node["NodeManagerAddress"]}
        found["host"] = node["NodeManagerHostname"]
        try:
            answered: dict[str, object] = ray.get(answer, timeout=max(0.0, deadline - time.monotonic()))
            found.update(answered)
        except ray.exceptions.GetTimeoutError:
            found["failure"] = f"no worker started within {asked['timeout_s']:.0f} s"
        except Exception as error:  # noqa: BLE001 - whatever that node cannot do is what we are asked for
            found["failure"] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
        told.append(found)
    print(json.dumps(told), flush=True)  # noqa: T201 - a program's answer


def _give_up(seconds: float) -> None:
    """Ray itself tries for minutes, in code that nothing else can interrupt."""
    os.write(2, f"it did not let us connect within {seconds:.0f} s\n".encode())
    os._exit(1)
