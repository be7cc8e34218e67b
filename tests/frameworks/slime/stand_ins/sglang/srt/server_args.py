"""Settings of an engine, as far as slime reads them: the engines themselves are started elsewhere."""

import dataclasses
from typing import Any

_NAMES = (
    *("model_path", "trust_remote_code", "random_seed", "host", "port", "nccl_port", "nnodes", "node_rank"),
    *("dist_init_addr", "gpu_id_step", "base_gpu_id", "tp_size", "dp_size", "pp_size", "ep_size"),
    *("skip_server_warmup", "enable_memory_saver", "enable_metrics", "enable_draft_weights_cpu_backup"),
)


@dataclasses.dataclass
class _Settings:
    """slime goes through the fields."""

    __annotations__ = dict.fromkeys(_NAMES, Any)
    locals().update(dict.fromkeys(_NAMES))


class ServerArgs(_Settings):
    """What slime's parser calls."""

    @staticmethod
    def add_cli_args(parser: Any) -> None:
        for name, short in (("tensor-parallel", "tp"), ("pipeline-parallel", "pp"), ("data-parallel", "dp")):
            parser.add_argument(
                f"--{name}-size", f"--{short}-size", type=int, default=1, dest=f"{short}_size"
            )
        parser.add_argument("--expert-parallel-size", "--ep-size", type=int, default=1, dest="ep_size")
        parser.add_argument("--moe-dp-size", type=int, default=1)
        parser.add_argument("--enable-dp-attention", action="store_true")
