"""Stands for the updater that broadcasts."""

import stand_in_calls as ray
from stand_in_calls import dist


def all_gather_param(name, param):
    return param


def convert_to_hf(args, model_name, name, param):
    return [(name, param)]


def update_weights_from_distributed(
    group_name, group, weight_version, rollout_engines, converted_named_tensors, load_format=None
):
    return [
        engine.update_weights_from_distributed.remote(group_name=group_name) for engine in rollout_engines
    ]


class UpdateWeightFromDistributed:
    """Buckets of two parameters; then the experts in one."""

    def __init__(self, args, parameters, experts=(), stage=0):
        self.args = args
        self.parameters, self.experts = list(parameters), list(experts)
        self.weight_version = 0
        self.stage = stage

    def connect_rollout_engines(self, rollout_engines, rollout_engine_lock, **_kwargs):
        self.rollout_engines, self.rollout_engine_lock = rollout_engines, rollout_engine_lock
        self._is_pp_src_rank = self.args.is_source
        if self._is_pp_src_rank:
            self._group_name = f"slime-pp_{self.stage}"

    def update_weights(self):
        self.weight_version += 1
        ray.get([engine.pause_generation.remote() for engine in self.rollout_engines])
        ray.get([engine.flush_cache.remote() for engine in self.rollout_engines])
        dist.barrier()
        for chunks in (self._iter_non_expert_chunks(), self._iter_expert_chunks()):
            for chunk in chunks:
                self._update_bucket_weights_from_distributed(chunk)
            dist.barrier()
        ray.get([engine.continue_generation.remote() for engine in self.rollout_engines])
        dist.barrier()

    def _iter_non_expert_chunks(self):
        chunk = []
        for name, parameter in self.parameters:
            gathered = all_gather_param(name, parameter)
            if not self._is_pp_src_rank:
                continue
            if len(chunk) == 2:
                yield chunk
                chunk = []
            chunk += convert_to_hf(self.args, "model", name, gathered)
        if chunk:
            yield chunk

    def _iter_expert_chunks(self):
        if self.experts:
            chunk = self._ep_gather_and_convert(list(self.experts))
            if chunk:
                yield chunk

    def _ep_gather_and_convert(self, named_tensors):
        if not self._is_pp_src_rank:
            return []
        chunk = []
        for name, tensor in named_tensors:
            chunk += convert_to_hf(self.args, "model", name, tensor)
        return chunk

    def _update_bucket_weights_from_distributed(self, converted_named_tensors, load_format=None):
        while not ray.get(self.rollout_engine_lock.acquire.remote()):
            pass
        refs = update_weights_from_distributed(
            self._group_name, None, self.weight_version, self.rollout_engines, converted_named_tensors
        )
        ray.get(refs)
        converted_named_tensors.clear()
        ray.get(self.rollout_engine_lock.release.remote())
