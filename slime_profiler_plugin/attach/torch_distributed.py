"""Ranks that a launcher such as torchrun started: they record from their process group on.

Where Ray, SGLang or the program itself has begun before, this begins nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeVar

from slime_profiler_plugin._timeline import timeline

from ._targets import Target
from ._wrap import Bound, wrap

T = TypeVar("T")

_INIT: Final = Target(
    "torch",
    "torch.distributed.distributed_c10d",
    "init_process_group",
    ("backend", "world_size", "rank"),
    ("records of ranks that nothing else starts",),
)
TARGETS: Final = (_INIT,)
#: What every launcher of ranks sets.
_RANK: Final = "RANK"


def register() -> None:
    """Wait for torch's process groups."""
    wrap(_INIT, _around_init)


def _around_init(call: Callable[[], T], _bound: Bound) -> T:
    result = call()
    if not timeline.on and _RANK in os.environ and "RAY_RAYLET_PID" not in os.environ:
        timeline.start(role="actor")
    return result
