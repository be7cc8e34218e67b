"""Phases of making a bucket ready: gathering a parameter from other ranks, and converting it."""

from __future__ import annotations

import sys
from typing import Any, Final

from slime_profiler_plugin.attach import expert_parallel
from slime_profiler_plugin.attach._wrap import Bound

from ._sync import Call, Sync, argument, current
from ._updaters import ready

_EXPERTS: Final = ".experts."
_LAYOUT: Final = "megatron.core.parallel_state"


def around_tp_gather(call: Call, bound: Bound) -> Any:
    """One parameter; most calls give back what they are given."""
    sync = current()
    name, parameter = argument(bound, 0, "name"), argument(bound, 1, "param")
    if sync is None or not _is_split(name, parameter):
        return call()
    with sync.phase("tp_gather", bytes=parameter.nbytes, tensors=1):
        return call()


def around_tp_gathers(call: Call, bound: Bound) -> Any:
    """All parameters of a bucket at once, once they are on this stage."""
    sync = current()
    if sync is None:
        return call()
    sync.gathering.end()
    split = [
        parameter
        for info, parameter in argument(bound, 0, "param_infos_and_params")
        if _is_split(info.name, parameter)
    ]
    if not split:
        return call()
    with sync.phase("tp_gather", bytes=sum(p.nbytes for p in split), tensors=len(split)):
        return call()


def around_full_params(call: Call, bound: Bound) -> Any:
    """The same after those that only other stages or other ranks' experts have were fetched."""
    sync = current()
    if sync is None:
        return call()
    infos = argument(bound, 0, "megatron_local_param_infos")
    if _size("get_expert_model_parallel_world_size") > 1 and any(_EXPERTS in info.name for info in infos):
        sync.gathering.begin(expert_parallel.phase("gather", group=_expert_group(), **sync.fields()))
    elif _size("get_pipeline_model_parallel_world_size") > 1:
        sync.gathering.begin(sync.phase("pp_gather"))
    try:
        return call()
    finally:
        sync.gathering.end()


def around_ep_gather(call: Call, bound: Bound) -> Any:
    """Experts that this rank and others hold, of each layer some."""
    sync = current()
    if sync is None:
        return call()
    tensors = [tensor for _, tensor in argument(bound, 1, "named_tensors")]
    return _experts(sync, call, {"bytes": sum(t.nbytes for t in tensors), "tensors": len(tensors)})


def around_expert_batch(call: Call, _bound: Bound) -> Any:
    """Experts that go from rank to rank where an engine needs them: a bucket of their own."""
    sync = current()
    if sync is None:
        return call()
    return ready(sync, lambda: _experts(sync, call, {}), {})


def _experts(sync: Sync, call: Call, size: dict[str, int]) -> Any:
    """Gathering, up to the first that is converted; from there on it is converting."""
    sync.gathering.begin(expert_parallel.phase("gather", group=_expert_group(), **sync.fields(**size)))
    sync.experts = "gathered"
    try:
        return call()
    except BaseException as error:
        sync.gathering.end(error)
        raise
    finally:
        sync.experts = None
        sync.gathering.end()


def around_convert(call: Call, _bound: Bound) -> Any:
    """One parameter; of experts that were gathered together, the first stands for all."""
    sync = current()
    if sync is None:
        return call()
    if sync.experts is None:
        with sync.phase("weight_convert"):
            return call()
    if sync.experts == "gathered":
        sync.experts = "converted"
        sync.gathering.begin(expert_parallel.phase("convert", group=_expert_group(), **sync.fields()))
    return call()


def around_convert_chunk(call: Call, bound: Bound) -> Any:
    """All parameters of a bucket."""
    sync = current()
    if sync is None:
        return call()
    with sync.phase("weight_convert", tensors=len(argument(bound, 2, "param_infos"))):
        return call()


def _is_split(name: str, parameter: Any) -> bool:
    """Whether ranks must exchange something to have the whole of it, as slime decides it."""
    if "expert_bias" in name or not getattr(parameter, "tensor_model_parallel", False):
        return False
    if getattr(parameter, "parallel_mode", None) == "duplicated":
        return False
    kind = "expert_tensor_parallel" if _EXPERTS in name else "tensor_model_parallel"
    return _size(f"get_{kind}_world_size") > 1


def _size(function: str) -> int:
    """What Megatron's layout says; it communicates nothing."""
    ask = getattr(sys.modules.get(_LAYOUT), function, None)
    return 1 if ask is None else int(ask())


def _expert_group() -> Any:
    ask = getattr(sys.modules.get(_LAYOUT), "get_expert_model_parallel_group", None)
    return None if ask is None else ask()
