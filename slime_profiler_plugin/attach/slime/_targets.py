"""What of slime is hooked. Looked up in slime 0.3.1, commit 624b824a8.

A name that a module has imported from another is wrapped where it is called from: there it is found at each
call, and what else uses it stays as it is.
"""

from __future__ import annotations

from typing import Final

from slime_profiler_plugin.attach._slime_arguments import PARSE
from slime_profiler_plugin.attach._targets import Target

from ._load_class import LOAD_CLASS, MANAGER_CLASS, MANAGER_MODULE

_MEGATRON: Final = "slime.backends.megatron_utils"
_ACTOR: Final = f"{_MEGATRON}.actor"
_MODEL: Final = f"{_MEGATRON}.model"
_SAVER: Final = f"{_MEGATRON}.hf_checkpoint_saver"
_UPDATE: Final = f"{_MEGATRON}.update_weight"
_DISTRIBUTED: Final = f"{_UPDATE}.update_weight_from_distributed"
_TENSOR: Final = f"{_UPDATE}.update_weight_from_tensor"
_DISK: Final = f"{_UPDATE}.update_weight_from_disk"
_DELTA: Final = f"{_UPDATE}.update_weight_from_disk_delta"
_ITERATOR: Final = f"{_UPDATE}.hf_weight_iterator_direct"
_TIMER: Final = "slime.observability.timer"
_GROUP: Final = "slime.ray.actor_group"
_GENERATE: Final = "slime.rollout.sglang_rollout"
_ENGINE: Final = "slime.backends.sglang_utils.sglang_engine"

_ASKED: Final = "pause_generation flush_cache continue_generation sync_complete"


def _target(module: str, name: str, parameters: str, phases: str) -> Target:
    """`parameters` and `phases` are separated by spaces."""
    return Target("slime", module, name, tuple(parameters.split()), tuple(phases.split()))


# A trainer rank.
TIMER_START: Final = _target(
    _TIMER,
    "Timer.start",
    "self name",
    "data_preprocess ref_log_probs teacher_log_probs log_probs sleep wake_up save_model train_rollout "
    "actor_train",
)
TIMER_END: Final = _target(_TIMER, "Timer.end", "self name", " ".join(TIMER_START.phases))
ACTOR_INIT: Final = _target(_ACTOR, "MegatronTrainRayActor.init", "self args role", "trainer_init train_wait")
ACTOR_TRAIN: Final = _target(
    _ACTOR, "MegatronTrainRayActor.train", "self rollout_id rollout_data_ref", "train_wait"
)
ACTOR_UPDATE: Final = _target(_ACTOR, "MegatronTrainRayActor.update_weights", "self", "weight_sync")
ACTOR_SAVE: Final = _target(_ACTOR, "MegatronTrainRayActor.save_model", "self rollout_id", "save_model")
ACTOR_BARRIER: Final = _target(_ACTOR, "dist.barrier", "group", "barrier")
MEGATRON_INIT: Final = _target(f"{_MEGATRON}.initialize", "init", "args", "")
FORWARD_ONLY: Final = _target(
    _MODEL, "forward_only", "f args model", "log_probs ref_log_probs teacher_log_probs values"
)
TRAIN: Final = _target(_MODEL, "train", "rollout_id model optimizer", "train_step")
TRAIN_STEP: Final = _target(_MODEL, "train_one_step", "args rollout_id step_id", "train_step")
ADVANTAGES: Final = _target(
    f"{_MEGATRON}.loss", "compute_advantages_and_returns", "args rollout_data", "advantages"
)

# The updaters.
_CONNECT: Final = "self rollout_engines rollout_engine_lock"
CONNECTS: Final = tuple(
    _target(module, f"{name}.connect_rollout_engines", _CONNECT, "connect_engines")
    for module, name in (
        (_DISTRIBUTED, "UpdateWeightFromDistributed"),
        (_TENSOR, "UpdateWeightFromTensor"),
        (_DISK, "UpdateWeightFromDisk"),
        (_DELTA, "UpdateWeightFromDiskDelta"),
    )
)
UPDATES: Final = tuple(
    _target(target.module, f"{target.name.partition('.')[0]}.update_weights", "self", "weight_sync")
    for target in CONNECTS
)
BARRIERS: Final = tuple(_target(target.module, "dist.barrier", "group", "barrier") for target in CONNECTS)
#: The disk updater asks no engine: the driver does.
GETS: Final = tuple(
    _target(module, "ray.get", "object_refs", f"{_ASKED} {waits}")
    for module, waits in (
        (_DISTRIBUTED, "bucket_ack bucket_lock_release"),
        (_TENSOR, "bucket_ack"),
        (_DELTA, "engine_wait"),
        (_GROUP, "engine_wait"),
        (_ACTOR, "engine_wait"),
    )
)
#: Every call of an actor passes through it.
ACTOR_CALL: Final = Target(
    "ray",
    "ray.actor",
    "ActorHandle._actor_method_call",
    ("self", "method_name"),
    (*_ASKED.split(), "bucket_ack", "bucket_lock_release", "engine_wait"),
)
CHUNKS: Final = tuple(
    _target(_DISTRIBUTED, f"UpdateWeightFromDistributed.{name}", "self", "bucket_ready")
    for name in ("_iter_non_expert_chunks", "_iter_expert_chunks")
)
DIRECT_CHUNKS: Final = _target(
    _ITERATOR, "HfWeightIteratorDirect.get_hf_weight_chunks", "self megatron_local_weights", "bucket_ready"
)
TP_GATHER: Final = _target(_DISTRIBUTED, "all_gather_param", "name param", "tp_gather")
TP_GATHERS: Final = _target(_ITERATOR, "all_gather_params_async", "param_infos_and_params", "tp_gather")
FULL_PARAMS: Final = _target(
    _ITERATOR,
    "_get_megatron_full_params",
    "megatron_local_param_infos megatron_local_weights",
    "ep_gather pp_gather",
)
EP_GATHER: Final = _target(
    _DISTRIBUTED,
    "UpdateWeightFromDistributed._ep_gather_and_convert",
    "self named_tensors",
    "ep_gather weight_convert",
)
EP_SEND: Final = _target(
    _TENSOR,
    "UpdateWeightFromTensor._prepare_expert_weight_batch",
    "self transfers megatron_local_weights",
    "bucket_ready ep_gather weight_convert",
)
_CONVERTED: Final = "args model_name name param"
CONVERTS: Final = tuple(
    _target(module, "convert_to_hf", _CONVERTED, "weight_convert") for module in (_DISTRIBUTED, _TENSOR)
)
CONVERT_CHUNK: Final = _target(
    _ITERATOR,
    "HfWeightIteratorDirect._convert_to_hf_named_tensors",
    "self megatron_full_params param_infos",
    "weight_convert",
)
BUCKET: Final = _target(
    _DISTRIBUTED,
    "UpdateWeightFromDistributed._update_bucket_weights_from_distributed",
    "self converted_named_tensors",
    "bucket_lock_wait",
)
SEND: Final = _target(
    _DISTRIBUTED,
    "update_weights_from_distributed",
    "group_name group weight_version rollout_engines converted_named_tensors",
    "bucket_send bucket_lock_wait",
)
SEND_TENSORS: Final = _target(
    _TENSOR,
    "_send_to_colocated_engine",
    "hf_named_tensors ipc_engine ipc_gather_src ipc_gather_group",
    "bucket_send bucket_hand_over",
)

# Over disk.
LAYOUT: Final = _target(_SAVER, "_get_node_save_layout", "args", "bucket_ready")
WRITE: Final = _target(_SAVER, "_SafetensorShardWriter.write", "self named_tensors shard_idx", "shard_write")
FINALIZE: Final = _target(_SAVER, "_finalize_distributed_shards", "path local_state", "shard_finalize")
MAKE_DISK: Final = _target(_DISK, "UpdateWeightFromDisk.__init__", "self args", "post_write")
MAKE_DELTA: Final = _target(_DELTA, "UpdateWeightFromDiskDelta.__init__", "self args", "post_write")
ENCODE: Final = _target(_DELTA, "UpdateWeightFromDiskDelta._encode_delta", "self", "delta_encode")
PUBLISH: Final = _target(_DELTA, "UpdateWeightFromDiskDelta._write_delta_files", "self", "delta_publish")
METRICS: Final = _target(_DELTA, "UpdateWeightFromDiskDelta._record_metrics", "self", "sync_complete")

# The driver.
ASYNC_TRAIN: Final = _target(
    _GROUP, "RayTrainGroup.async_train", "self rollout_id", "the rollout of the driver's phases"
)
UPDATE_ALL: Final = _target(_GROUP, "RayTrainGroup.update_weights", "self", "update_weights")
RELOAD: Final = _target(
    _GROUP,
    "RayTrainGroup._reload_rollout_weights_from_disk",
    "self disk_weight_dir weight_version",
    "weight_sync",
)

# The rollout manager.
_METHODS: Final = {
    "__init__": ("self args pg", "the rollout manager's records"),
    "generate": ("self rollout_id", "the rollout of the manager's phases"),
    "eval": ("self rollout_id", "eval"),
    "_get_rollout_data": ("self rollout_id", "generate"),
    "_convert_samples_to_train_data": ("self samples", "convert_samples"),
    "_split_train_data_by_dp": ("self data", "convert_samples"),
    "offload": ("self", "offload"),
    "onload_weights": ("self", "onload_weights"),
    "onload_kv": ("self", "onload_kv"),
    "dispose": ("self", "the last profiler windows of engines"),
}
#: Methods of a class that travels by value: wrapped in the actor, as it loads its class.
MANAGER: Final = {
    name: Target("slime", MANAGER_MODULE, f"{MANAGER_CLASS}.{name}", tuple(parameters.split()), (phases,))
    for name, (parameters, phases) in _METHODS.items()
}
ADDRESSES: Final = _target(
    MANAGER_MODULE,
    "_allocate_rollout_engine_addr_and_ports_normal",
    "args rollout_engines num_gpus_per_engine",
    "",
)
REWARD: Final = _target(_GENERATE, "async_rm", "args sample", "reward")
REWARDS: Final = _target(_GENERATE, "batched_async_rm", "args samples", "reward")

# The client of an engine.
ENGINE_MAKE: Final = _target(_ENGINE, "SGLangEngine.__init__", "self args rank", "")
ENGINE_INIT: Final = _target(_ENGINE, "SGLangEngine.init", "self dist_init_addr port nccl_port", "")
ENGINE_REQUEST: Final = _target(
    _ENGINE, "SGLangEngine._make_request", "self endpoint payload", "engine_request"
)

TARGETS: Final = (
    PARSE,
    TIMER_START,
    TIMER_END,
    ACTOR_INIT,
    ACTOR_TRAIN,
    ACTOR_UPDATE,
    ACTOR_SAVE,
    ACTOR_BARRIER,
    MEGATRON_INIT,
    FORWARD_ONLY,
    TRAIN,
    TRAIN_STEP,
    ADVANTAGES,
    *CONNECTS,
    *UPDATES,
    *BARRIERS,
    *GETS,
    ACTOR_CALL,
    *CHUNKS,
    DIRECT_CHUNKS,
    TP_GATHER,
    TP_GATHERS,
    FULL_PARAMS,
    EP_GATHER,
    EP_SEND,
    *CONVERTS,
    CONVERT_CHUNK,
    BUCKET,
    SEND,
    SEND_TENSORS,
    LAYOUT,
    WRITE,
    FINALIZE,
    MAKE_DISK,
    MAKE_DELTA,
    ENCODE,
    PUBLISH,
    METRICS,
    ASYNC_TRAIN,
    UPDATE_ALL,
    RELOAD,
    *MANAGER.values(),
    LOAD_CLASS,
    ADDRESSES,
    REWARD,
    REWARDS,
    ENGINE_MAKE,
    ENGINE_INIT,
    ENGINE_REQUEST,
)
