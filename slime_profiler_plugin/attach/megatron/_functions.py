"""Megatron's functions that are phases, and what is noted of their calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.attach._failures import FAILURE, failed, is_theirs
from slime_profiler_plugin.attach._open_phases import PHASES
from slime_profiler_plugin.attach._targets import Target
from slime_profiler_plugin.attach._wrap import Around, Bound
from slime_profiler_plugin.attach.expert_parallel import STAGES, call_fields

from ._lend import configs_of, lend
from ._ranks import tell_ranks

T = TypeVar("T")

_SCHEDULES: Final = "megatron.core.pipeline_parallel.schedules"
_BUCKETS: Final = "megatron.core.distributed.param_and_grad_buffer"
_DDP: Final = "megatron.core.distributed.distributed_data_parallel"
_OPTIMIZER: Final = "megatron.core.optimizer.optimizer"
_DISTRIBUTED_OPTIMIZER: Final = "megatron.core.optimizer.distrib_optimizer"
_LAYER_WISE: Final = "megatron.core.optimizer.layer_wise_optimizer"
_DISPATCHERS: Final = "megatron.core.transformer.moe.token_dispatcher"
_TRAINING: Final = "megatron.training.training"

_OPTIMIZER_PHASES: Final = (
    "optimizer optimizer_copy_grads optimizer_check_inf optimizer_inner_step optimizer_copy_params "
    "param_gather"
)


class Hook(NamedTuple):
    """A function of Megatron's, and what is done around its calls."""

    target: Target
    around: Around


def _plain(phase: str) -> Around:
    """A phase and nothing else."""

    def around(call: Callable[[], T], _bound: Bound) -> T:
        return PHASES.around(phase, call, {})

    return around


def _forward_backward(call: Callable[[], T], bound: Bound) -> T:
    if not timeline.on:
        return call()
    tell_ranks()
    fields = {"forward_only": True} if bound.kwargs.get("forward_only") is True else {}

    def lent() -> T:
        return lend(lambda: _model_configs(bound.kwargs.get("model")), call)

    return PHASES.around("forward_backward", lent, fields)


def _model_configs(model: Any) -> Iterator[Any]:
    """Of each chunk of the model; a wrapped one has it where Megatron's `get_model_config` finds it."""
    for chunk in model if isinstance(model, (list, tuple)) else (model,):
        inner = chunk
        while inner is not None and getattr(inner, "config", None) is None:
            inner = getattr(inner, "module", None)
        if inner is not None:
            yield inner.config


def _step(call: Callable[[], T], bound: Bound) -> T:
    if not timeline.on:
        return call()
    return PHASES.around("optimizer", lambda: lend(lambda: configs_of(bound.args[0]), call), {})


def _bucket_group(phase: str, data: str) -> Around:
    """`data`: the name of the buckets' tensor that travels."""

    def around(call: Callable[[], T], bound: Bound) -> T:
        if not timeline.on or (phase == "param_sync_finish" and _has_parameters(bound.args[0])):
            return call()
        return PHASES.around(phase, call, _bucket_fields(bound.args[0], data))

    return around


def _has_parameters(group: Any) -> bool:
    """Whether the group's parameters are here already: Megatron asks before each module that uses one."""
    asked: bool = getattr(group, "param_gather_dispatched", False)
    return asked and getattr(group, "param_gather_handle", 0) is None


def _bucket_fields(group: Any, data: str) -> dict[str, int]:
    try:
        buckets = [(getattr(bucket, data), bucket.params) for bucket in group.buckets]
        sizes = [(tensor.nbytes, len(params)) for tensor, params in buckets if tensor is not None]
        return {"bytes": sum(size for size, _ in sizes), "tensors": sum(count for _, count in sizes)}
    except FAILURE as error:
        if is_theirs(error):
            raise
        failed("megatron buckets", error)
        return {}


def _dispatcher(stage: str, group: str) -> Around:
    """`group`: the dispatcher's name for the ranks it communicates with."""
    phase = STAGES[stage]

    def group_of(dispatcher: Any, *_args: Any, **_kwargs: Any) -> Any:
        return getattr(dispatcher, group, None)

    def around(call: Callable[[], T], bound: Bound) -> T:
        if not timeline.on:
            return call()
        return PHASES.around(phase, call, call_fields(group_of, bound.args, bound.kwargs))

    return around


def _hooks(
    module: str, names: str, parameters: str, around: Around, phases: str, *, optional: bool = False
) -> Iterator[Hook]:
    """Of each of `names`; like `parameters` and `phases` they are separated by spaces."""
    for name in names.split():
        target = Target("megatron", module, name, tuple(parameters.split()), tuple(phases.split()), optional)
        yield Hook(target, around)


def _phase_hooks(module: str, names: str, parameters: str, phase: str, **optional: bool) -> Iterator[Hook]:
    return _hooks(module, names, parameters, _plain(phase), phase, **optional)


HOOKS: Final[tuple[Hook, ...]] = (
    *_hooks(
        _SCHEDULES,
        "forward_backward_no_pipelining forward_backward_pipelining_with_interleaving "
        "forward_backward_pipelining_without_interleaving",
        "forward_step_func data_iterator model",
        _forward_backward,
        "forward_backward forward backward pp_send pp_recv pp_send_recv finalize_grads grad_sync "
        "embedder_grad_sync non_tp_grad_sync embedding_grad_sync",
    ),
    *(
        hook
        for kind in ("grad", "param")
        for end in ("start", "finish")
        for hook in _hooks(
            _BUCKETS,
            f"_ParamAndGradBucketGroup.{end}_{kind}_sync",
            "self",
            _bucket_group(f"{kind}_sync_{end}", f"{kind}_data"),
            f"{kind}_sync_{end}",
        )
    ),
    *_phase_hooks(_DDP, "DistributedDataParallel.zero_grad_buffer", "self", "zero_grad"),
    *_hooks(
        _OPTIMIZER,
        "MixedPrecisionOptimizer.step FP32Optimizer.step ChainedOptimizer.step",
        "self",
        _step,
        _OPTIMIZER_PHASES,
    ),
    *_hooks(
        _LAYER_WISE,
        "LayerWiseDistributedOptimizer.step",
        "self",
        _step,
        _OPTIMIZER_PHASES,
        optional=True,
    ),
    *_phase_hooks(
        _LAYER_WISE, "LayerWiseDistributedOptimizer.allgather_params", "self", "param_gather", optional=True
    ),
    *_phase_hooks(
        _OPTIMIZER,
        "Float16OptimizerWithFloat16Params.zero_grad FP32Optimizer.zero_grad ChainedOptimizer.zero_grad",
        "self",
        "zero_grad",
    ),
    *_phase_hooks(_DISTRIBUTED_OPTIMIZER, "DistributedOptimizer.zero_grad", "self", "zero_grad"),
    *_phase_hooks(
        _OPTIMIZER,
        "MegatronOptimizer.get_grad_norm ChainedOptimizer.get_grad_norm",
        "self",
        "optimizer_grad_norm",
    ),
    *_phase_hooks(
        _OPTIMIZER, "clip_grad_by_total_norm_fp32", "parameters max_norm total_norm", "optimizer_clip"
    ),
    *_phase_hooks(
        _OPTIMIZER,
        "MegatronOptimizer.count_zeros ChainedOptimizer.count_zeros",
        "self",
        "optimizer_count_zeros",
    ),
    *(
        hook
        for kind, group in (("AllGather", "tp_ep_group"), ("AlltoAll", "ep_group"), ("Flex", "tp_ep_group"))
        for stage in ("dispatch", "combine")
        for hook in _hooks(
            _DISPATCHERS,
            f"MoE{kind}TokenDispatcher.token_{stage}",
            "self",
            _dispatcher(stage, group),
            STAGES[stage],
        )
    ),
    # Not part of Megatron-Core.
    *_phase_hooks(
        _TRAINING,
        "train_step",
        "forward_step_func data_iterator model optimizer",
        "train_step",
        optional=True,
    ),
)
#: What `doctor` looks at.
TARGETS: Final[tuple[Target, ...]] = tuple(hook.target for hook in HOOKS)
