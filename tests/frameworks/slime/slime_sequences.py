"""What each updater of slime is known to do in one sync, as patterns over the phases directly inside it."""

from __future__ import annotations

import re

#: The manager is asked for the engines; rank 0 tells it when they are connected.
_FIRST = "engine_wait (connect_engines barrier (engine_wait )?)?"
_ASKED = "pause_generation flush_cache "
_LAST = "continue_generation sync_complete "
_BROADCAST = "bucket_ready bucket_lock_wait bucket_send bucket_ack bucket_lock_release "
_GATHERS = "((tp_gather |ep_gather )*)"

#: By transport, then by what a rank does in it: the rank that asks the engines, another that sends, others.
PATTERNS: dict[str, dict[str, str]] = {
    "distributed": {
        "first": f"{_FIRST}{_ASKED}barrier ({_BROADCAST})+barrier ({_BROADCAST})*barrier {_LAST}",
        "source": f"{_FIRST}barrier ({_BROADCAST})+barrier ({_BROADCAST})*barrier barrier ",
        "other": f"{_FIRST}barrier {_GATHERS}barrier {_GATHERS}barrier barrier ",
    },
    "tensor": {
        "first": f"{_FIRST}{_ASKED}barrier (bucket_ready bucket_send bucket_ack )+barrier {_LAST}",
        "other": f"{_FIRST}barrier (bucket_ready bucket_hand_over )+barrier barrier ",
    },
    "disk": {
        "first": f"{_FIRST}barrier (bucket_ready shard_write )+(shard_finalize )?barrier post_write barrier ",
        "other": f"{_FIRST}barrier (bucket_ready shard_write |pp_gather |tp_gather |weight_convert )*"
        "(shard_finalize )?barrier post_write barrier ",
        "driver": f"engine_wait {_ASKED}engine_wait {_LAST}",
    },
    "delta": {
        "first": f"{_FIRST}delta_encode barrier delta_publish post_write barrier engine_wait "
        f"{_ASKED}engine_wait {_LAST}",
        "other": f"{_FIRST}{_GATHERS}barrier {_GATHERS}barrier barrier barrier post_write barrier barrier "
        "sync_complete ",
        # Nothing is sent: what is sent later is the difference to this. The engines lay out their copies.
        "first baseline": f"{_FIRST}post_write barrier (bucket_ready )+barrier barrier engine_wait ",
        "other baseline": f"{_FIRST}barrier {_GATHERS}barrier {_GATHERS}barrier ",
    },
}


def matches(pattern: str, names: list[str]) -> bool:
    """Whether `names`, each followed by a space, are what `pattern` says."""
    return re.fullmatch(pattern, "".join(f"{name} " for name in names)) is not None
