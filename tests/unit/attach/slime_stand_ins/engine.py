"""Stands for the actor that speaks to an engine."""

import os


class SGLangEngine:
    def __init__(self, args, rank, worker_type="regular", num_gpus_per_engine=None):
        self.args, self.rank, self.num_gpus_per_engine = args, rank, num_gpus_per_engine
        self.node_rank = 0

    def init(self, dist_init_addr, port, nccl_port, host=None):
        return os.environ.get("SLIME_PROFILER_ENGINE_INDEX")

    def _make_request(self, endpoint, payload=None):
        return endpoint
