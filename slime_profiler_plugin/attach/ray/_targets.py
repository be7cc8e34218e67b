"""Where Ray is joined: connecting, leaving, and a worker becoming an actor. Looked up in Ray 2.60."""

from __future__ import annotations

from typing import Final

from slime_profiler_plugin.attach._targets import Target

#: Every way to ``ray.init``, also Ray's own, and every worker pass through it.
CONNECT: Final = Target(
    "ray", "ray._private.worker", "connect", ("node", "session_name", "mode"), ("the driver's records",)
)
#: So does every way to leave, at exit too; the cluster can still be asked.
DISCONNECT: Final = Target(
    "ray", "ray._private.worker", "disconnect", ("exiting_interpreter",), ("Ray's own timeline",)
)
#: The first that a worker does for an actor, before the user's module is imported.
LOAD_ACTOR_CLASS: Final = Target(
    "ray",
    "ray._private.function_manager",
    "FunctionActorManager.load_actor_class",
    ("self", "job_id", "actor_creation_function_descriptor"),
    ("records of actors that nobody else starts", "the run of their subprocesses"),
)

TARGETS: Final[tuple[Target, ...]] = (CONNECT, DISCONNECT, LOAD_ACTOR_CLASS)
