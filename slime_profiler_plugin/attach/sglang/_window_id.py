"""What an engine's window is called: by it the scheduler knows its rollout.

SGLang takes the beginnings of names for one id, and rank numbers from anywhere in a name: numbers have
leading zeros, and nothing here looks like ``TP-0``.
"""

from __future__ import annotations

import re
from typing import Final

from slime_profiler_plugin.layout import rollout_name

_ID: Final = re.compile(r"slime_profiler-rollout_(\d{6,})-engine_\d{4,}")


def engine_name(index: int) -> str:
    """Of the folder of one engine's files.

    >>> engine_name(3)
    'engine_0003'
    """
    return f"engine_{index:04d}"


def window_id(rollout: int, index: int) -> str:
    """The profile id of a window.

    >>> window_id(8, 0)
    'slime_profiler-rollout_000008-engine_0000'
    """
    return f"slime_profiler-{rollout_name(rollout)}-{engine_name(index)}"


def rollout_of(profile_id: str) -> int | None:
    """The rollout of a window of ours; ``None`` for anyone else's.

    >>> rollout_of(window_id(8, 0)), rollout_of("1764556417.3")
    (8, None)
    """
    match = _ID.fullmatch(profile_id)
    return int(match[1]) if match else None
