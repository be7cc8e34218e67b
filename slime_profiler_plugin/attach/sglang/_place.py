"""Which rank of which engine a scheduler is, and where its recording begins."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any, Final

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.attach._wrap import Bound

#: Which engine of several of the run this is; whoever launches them sets it.
INDEX_VARIABLE: Final = "SLIME_PROFILER_ENGINE_INDEX"


def around_scheduler(call: Callable[[], Any], bound: Bound) -> Any:
    """Around the making of a scheduler: start to record once it is made."""
    made = call()
    arguments = bound.kwargs.get("server_args", bound.args[1] if len(bound.args) > 1 else None)
    timeline.start(**describe(_parallel(bound.args[0]), arguments))
    return made


def describe(parallel: Any, arguments: Any) -> dict[str, Any]:
    """What `timeline.start` is told: `parallel` has ranks and sizes, `arguments` the server's settings.

    The rank is the one among the schedulers of the engine: tensor ranks within pipeline stages within
    replicas. With attention in data parallel the replicas are among the tensor ranks.

    >>> from types import SimpleNamespace
    >>> parallel = SimpleNamespace(tp_rank=1, tp_size=2, pp_rank=1, pp_size=2, dp_rank=None, dp_size=1)
    >>> told = describe(parallel, SimpleNamespace(node_rank=0))
    >>> told["rank"], told["world_size"], told["ranks"]
    (3, 4, {'tp': 1, 'pp': 1})
    """
    tp, pp = int(parallel.tp_size), int(parallel.pp_size)
    dp = int(_first(parallel, "dp_size", "num_dp_ranks") or 1)
    ranks = {"tp": int(parallel.tp_rank), "pp": int(parallel.pp_rank)}
    if parallel.dp_rank is not None:
        ranks["dp"] = int(parallel.dp_rank)
    if (expert := _first(parallel, "moe_ep_rank")) is not None:
        ranks["ep"] = int(expert)
    rank, world_size = ranks["pp"] * tp + ranks["tp"], pp * tp
    if dp > 1 and not _first(arguments, "enable_dp_attention"):
        rank, world_size = ranks.get("dp", 0) * world_size + rank, dp * world_size
    engine = {}
    if (node := _first(arguments, "node_rank")) is not None:
        engine["node_rank"] = int(node)
    index = os.environ.get(INDEX_VARIABLE, "")
    if index.isdigit():
        engine["index"] = int(index)
    return {"role": "engine", "rank": rank, "ranks": ranks, "world_size": world_size, "engine": engine}


def _parallel(scheduler: Any) -> Any:
    """Ranks and sizes: the scheduler's own, since 0.5.23 those of its process."""
    own = getattr(scheduler, "ps", None)
    if own is not None:
        return own
    return importlib.import_module("sglang.srt.runtime_context").get_parallel()


def _first(owner: Any, *names: str) -> Any:
    """The first of these attributes that is there, else ``None``."""
    return next((found for found in (_get(owner, name) for name in names) if found is not None), None)


def _get(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except (AttributeError, RuntimeError, ValueError):  # what SGLang raises for one that is not there
        return None
