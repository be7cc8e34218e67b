"""Stands for the updater that hands over tensors."""

import stand_in_calls as ray
import stand_in_distributed as distributed
from stand_in_calls import dist
from stand_in_iterator import HfWeightIteratorDirect


def convert_to_hf(args, model_name, name, param):
    return [(name, param)]


def _send_to_colocated_engine(
    hf_named_tensors, *, ipc_engine, ipc_gather_src, ipc_gather_group, weight_version
):
    refs = []
    if ipc_gather_src == dist.get_rank() and hf_named_tensors:
        refs.append(ipc_engine.update_weights_from_tensor.remote(weight_version=str(weight_version)))
    return refs, hf_named_tensors


class UpdateWeightFromTensor:
    def __init__(self, args, weights, batches=()):
        self.args = args
        self.weights, self.batches = weights, list(batches)
        self.weight_version = 0
        self.rank = dist.get_rank()
        self._ipc_gather_src = None

    def connect_rollout_engines(self, rollout_engines, rollout_engine_lock, **_kwargs):
        self.rollout_engines = rollout_engines
        self._ipc_engine = rollout_engines[1]
        self._ipc_gather_src = self.args.gather_source

    def update_weights(self):
        self.weight_version += 1
        ray.get([engine.pause_generation.remote() for engine in self.rollout_engines])
        ray.get([engine.flush_cache.remote() for engine in self.rollout_engines])
        for chunk in HfWeightIteratorDirect().get_hf_weight_chunks(self.weights):
            self._send(chunk)
        for batch in self.batches:
            self._send(self._prepare_expert_weight_batch(batch, self.weights, {}))
        if self.args.remote_engines:
            self._is_distributed_src_rank = True
            refs = distributed.update_weights_from_distributed(
                "slime", None, self.weight_version, self.args.remote_engines, [("w", self.weights["w"])]
            )
            ray.get(refs)
        ray.get([engine.continue_generation.remote() for engine in self.rollout_engines])
        dist.barrier()

    def _prepare_expert_weight_batch(self, transfers, megatron_local_weights, staging_buffers):
        return [pair for name, tensor in transfers for pair in convert_to_hf(self.args, "m", name, tensor)]

    def _send(self, chunk):
        refs, _ = _send_to_colocated_engine(
            chunk,
            ipc_engine=self._ipc_engine,
            ipc_gather_src=self._ipc_gather_src,
            ipc_gather_group="group",
            weight_version=self.weight_version,
        )
        ray.get(refs)
