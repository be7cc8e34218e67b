"""slime's own ``Timer``, whose names are phases.

It knows start and end, in one frame each; an exception ends it like anything else.
"""

from __future__ import annotations

import re
from typing import Any, Final

from slime_profiler_plugin.attach._open_phases import PHASES
from slime_profiler_plugin.attach._wrap import Bound

from ._sync import Call, argument

#: Another word for what slime calls ``train``, which is also what a driver waits for.
_RENAMED: Final = {"train": "train_rollout"}
#: What a function around the same is the phase of, with more fields and the error.
_ELSEWHERE: Final = frozenset({"train_wait", "update_weights"})
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


def around_start(call: Call, bound: Bound) -> Any:
    """A timer starts; one of the user's own is a phase of that name."""
    result = call()
    name = argument(bound, 1, "name")
    if name not in _ELSEWHERE and _NAME.fullmatch(name):
        PHASES.begin(_key(name), _RENAMED.get(name, name), {})
    return result


def around_end(call: Call, bound: Bound) -> Any:
    """It ends."""
    PHASES.end(_key(argument(bound, 1, "name")))
    return call()


def _key(name: str) -> str:
    return f"slime's timer {name}"
