"""Stands for the rollout manager; what `@ray.remote` makes of a class is imitated below it."""

from types import SimpleNamespace


def _allocate_rollout_engine_addr_and_ports_normal(
    *, args, rollout_engines, worker_type="regular", num_gpus_per_engine=None, rank_offset=0, base_port=15000
):
    return {rank: {"host": "127.0.0.1", "port": base_port + rank} for rank, _ in rollout_engines}, {}


class _Manager:
    def __init__(self, args, pg):
        self.args = args
        self.addresses, _ = _allocate_rollout_engine_addr_and_ports_normal(
            args=args, rollout_engines=[(rank, None) for rank in range(2)], num_gpus_per_engine=1
        )

    def generate(self, rollout_id):
        data = self._get_rollout_data(rollout_id=rollout_id)
        return self._split_train_data_by_dp(self._convert_samples_to_train_data(data))

    def eval(self, rollout_id):
        return rollout_id

    def _get_rollout_data(self, rollout_id):
        return [rollout_id]

    def _convert_samples_to_train_data(self, samples):
        return {"samples": samples}

    def _split_train_data_by_dp(self, data):
        return [data]

    def offload(self):
        return "off"

    def onload_weights(self):
        return "weights"

    def onload_kv(self):
        return "kv"

    def dispose(self):
        return "gone"


RolloutManager = SimpleNamespace(__ray_metadata__=SimpleNamespace(modified_class=_Manager))
