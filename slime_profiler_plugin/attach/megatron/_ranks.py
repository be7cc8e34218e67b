"""Where this process stands in Megatron's layout."""

from __future__ import annotations

import sys
from typing import Any, Final

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.attach._failures import FAILURE, failed, is_theirs

#: The names of the design, and Megatron's functions. None of them communicates.
_RANKS: Final = {
    "tp": "get_tensor_model_parallel_rank",
    "pp": "get_pipeline_model_parallel_rank",
    "dp": "get_data_parallel_rank",
    "cp": "get_context_parallel_rank",
    "ep": "get_expert_model_parallel_rank",
}

#: What was told last: a process tells it again only when it has changed.
_told: Any = None


def tell_ranks() -> None:
    """Tell the timeline this process's rank and parallel ranks, where Megatron has set them up."""
    global _told  # noqa: PLW0603
    try:
        layout = sys.modules.get("megatron.core.parallel_state")
        if layout is None or not layout.model_parallel_is_initialized():
            return
        distributed = sys.modules["torch.distributed"]
        identity = {
            "rank": distributed.get_rank(),
            "world_size": distributed.get_world_size(),
            "ranks": {name: getattr(layout, function)() for name, function in _RANKS.items()},
        }
        recorder = timeline._recorder
        if recorder is not None and _told != (id(recorder), identity):
            timeline.set_identity(**identity)
            _told = (id(recorder), identity)
    except FAILURE as error:
        if is_theirs(error):
            raise
        # The groups of a trainer that sleeps are gone until it wakes up, and its ranks are what they were.
        if _told is None or _told[0] != id(timeline._recorder):
            failed("megatron ranks", error)
