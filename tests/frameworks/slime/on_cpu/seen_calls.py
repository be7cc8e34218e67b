"""Writes down what a process of a job does: its collectives and its Ray calls, in order.

Each process appends lines of JSON to a file of its own below ``SLIME_TESTS_SEEN``, at once: Ray ends its
workers without running their code.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


class Lines:
    """Takes the place of a list that is only appended to."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def append(self, value: Any) -> None:
        tell(self._kind, value)


def tell(kind: str, value: Any) -> None:
    """One line, whole."""
    path = Path(os.environ["SLIME_TESTS_SEEN"], f"{os.getpid()}.jsonl")
    line = json.dumps({"who": who(), "kind": kind, "value": value}) + "\n"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def who() -> str:
    """What a process is for in slime's terms; empty where it does nothing of interest."""
    if "RANK" in os.environ:
        return f"trainer {os.environ['RANK']}"
    if "slime.ray.rollout" in sys.modules and "slime.ray.placement_group" not in sys.modules:
        return "rollout manager"
    return "driver" if "slime.ray.placement_group" in sys.modules else ""


def install() -> None:
    """From now on, once Ray's actors are there; collectives from when torch has them."""
    from ray.actor import ActorMethod

    remote = ActorMethod._remote

    def noted(method: Any, *args: Any, **kwargs: Any) -> Any:
        tell("call", method._method_name)
        return remote(method, *args, **kwargs)

    ActorMethod._remote = noted


def install_collectives() -> None:
    """Once torch is there."""
    import collectives

    collectives.SEEN = Lines("collective")  # type: ignore[assignment]
    collectives.install()
