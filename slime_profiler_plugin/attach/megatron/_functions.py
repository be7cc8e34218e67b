"""Megatron's functions that are phases, and what is noted of their calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.attach._failures import FAILURE, failed, is_theirs
from slime_profiler_plugin.attach._open_phases import PHASES
from slime_profiler_plugin.attach._targets import Target
from slime_profiler_plugin.attach.expert_parallel import STAGES, call_fields

from ._lend import configs_of, lend
from ._ranks import tell_ranks

T = TypeVar("T")


class Bound(Protocol):
    """What a function was called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


#: Runs the call it is given, once, and returns its result.
Around = Callable[[Callable[[], Any], Bound], Any]

_SCHEDULES: Final = "megatron.core.pipeline_parallel.schedules"
_BUCKETS: Final = "megatron.core.distributed.param_and_grad_buffer"
_DDP: Final = "megatron.core.distributed.distributed_data_parallel"
_OPTIMIZER: Final = "megatron.core.optimizer.optimizer"
_DISTRIBUTED_OPTIMIZER: Final = "megatron.core.optimizer.distrib_optimizer"
_LAYER_WISE: Final = "megatron.core.optimizer.layer_wise_optimizer"
_DISPATCHERS: Final = "megatron.core.transformer.moe.token_dispatcher"
_TRAINING: Final = "megatron.training.training"

_OPTIMIZER_PHASES: Final = (
    "optimizer_copy_grads",
    "optimizer_check_inf",
    "optimizer_inner_step",
    "optimizer_copy_params",
    "param_gather",
)
_FORWARD_BACKWARD_PHASES: Final = (
    "forward",
    "backward",
    "pp_send",
    "pp_recv",
    "pp_send_recv",
    "finalize_grads",
    "grad_sync",
    "embedder_grad_sync",
    "non_tp_grad_sync",
    "embedding_grad_sync",
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
    return getattr(group, "param_gather_dispatched", False) and getattr(group, "param_gather_handle", 0) is None


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


def _hooks() -> Iterator[Hook]:
    def hook(
        module: str,
        names: Iterable[str],
        parameters: tuple[str, ...],
        around: Around,
        phases: tuple[str, ...],
        optional: bool = False,
    ) -> Iterator[Hook]:
        for name in names:
            yield Hook(Target("megatron", module, name, parameters, phases, optional), around)

    yield from hook(
        _SCHEDULES,
        (
            "forward_backward_no_pipelining",
            "forward_backward_pipelining_with_interleaving",
            "forward_backward_pipelining_without_interleaving",
        ),
        ("forward_step_func", "data_iterator", "model"),
        _forward_backward,
        ("forward_backward", *_FORWARD_BACKWARD_PHASES),
    )
    for method, phase, data in (
        ("start_grad_sync", "grad_sync_start", "grad_data"),
        ("finish_grad_sync", "grad_sync_finish", "grad_data"),
        ("start_param_sync", "param_sync_start", "param_data"),
        ("finish_param_sync", "param_sync_finish", "param_data"),
    ):
        names = (f"_ParamAndGradBucketGroup.{method}",)
        yield from hook(_BUCKETS, names, ("self",), _bucket_group(phase, data), (phase,))
    yield from hook(
        _DDP, ("DistributedDataParallel.zero_grad_buffer",), ("self",), _plain("zero_grad"), ("zero_grad",)
    )
    for module, classes in (
        (_OPTIMIZER, ("MixedPrecisionOptimizer", "FP32Optimizer", "ChainedOptimizer")),
        (_LAYER_WISE, ("LayerWiseDistributedOptimizer",)),
    ):
        steps = tuple(f"{name}.step" for name in classes)
        phases = ("optimizer", *_OPTIMIZER_PHASES)
        yield from hook(module, steps, ("self",), _step, phases, optional=module == _LAYER_WISE)
    yield from hook(
        _LAYER_WISE,
        ("LayerWiseDistributedOptimizer.allgather_params",),
        ("self",),
        _plain("param_gather"),
        ("param_gather",),
        optional=True,
    )
    for module, classes in (
        (_OPTIMIZER, ("Float16OptimizerWithFloat16Params", "FP32Optimizer", "ChainedOptimizer")),
        (_DISTRIBUTED_OPTIMIZER, ("DistributedOptimizer",)),
    ):
        zeros = tuple(f"{name}.zero_grad" for name in classes)
        yield from hook(module, zeros, ("self",), _plain("zero_grad"), ("zero_grad",))
    for names, parameters, phase in (
        (("MegatronOptimizer.get_grad_norm", "ChainedOptimizer.get_grad_norm"), ("self",), "optimizer_grad_norm"),
        (("clip_grad_by_total_norm_fp32",), ("parameters", "max_norm", "total_norm"), "optimizer_clip"),
        (("MegatronOptimizer.count_zeros", "ChainedOptimizer.count_zeros"), ("self",), "optimizer_count_zeros"),
    ):
        yield from hook(_OPTIMIZER, names, parameters, _plain(phase), (phase,))
    for kind, group in (("AllGather", "tp_ep_group"), ("AlltoAll", "ep_group"), ("Flex", "tp_ep_group")):
        for stage in ("dispatch", "combine"):
            names = (f"MoE{kind}TokenDispatcher.token_{stage}",)
            yield from hook(_DISPATCHERS, names, ("self",), _dispatcher(stage, group), (STAGES[stage],))
    yield from hook(
        _TRAINING,
        ("train_step",),
        ("forward_step_func", "data_iterator", "model", "optimizer"),
        _plain("train_step"),
        ("train_step",),
        optional=True,  # not part of Megatron-Core
    )


HOOKS: Final = tuple(_hooks())
#: What `doctor` looks at.
TARGETS: Final[tuple[Target, ...]] = tuple(hook.target for hook in HOOKS)
