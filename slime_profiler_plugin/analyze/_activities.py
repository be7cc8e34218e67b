"""What each phase counts as when the time of a rollout is shared out."""

from __future__ import annotations

from typing import Final

from slime_profiler_plugin.phases import BUILT_IN, phase_group

GENERATE: Final = "generate"
TRAIN: Final = "train"
SYNC: Final = "sync"
EVAL: Final = "eval"
OTHER: Final = "other"
#: Waiting for others is idleness.
_IDLE: Final = frozenset({"train_wait", "barrier"})
_OTHER: Final = frozenset(
    {"sleep", "wake_up", "offload", "onload_weights", "onload_kv", "profiler_export", "save_model"}
)
_BY_GROUP: Final = {"trainer": TRAIN, "sync": SYNC, "engine": SYNC, "rollout": GENERATE}


def activity_of(name: str) -> str | None:
    """The activity of a phase that stands in no other; ``None`` for waiting.

    >>> [activity_of(n) for n in ("backward", "engine_load", "reward", "eval", "sleep", "train_wait", "mine")]
    ['train', 'sync', 'generate', 'eval', 'other', None, 'other']
    """
    if name in _IDLE:
        return None
    if name in _OTHER:
        return OTHER
    return EVAL if name == "eval" else _BY_GROUP.get(phase_group(name), OTHER)


ACTIVITIES: Final = {name: activity_of(name) for name in BUILT_IN}
