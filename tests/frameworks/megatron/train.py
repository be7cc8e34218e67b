"""One rank of tiny trainings with Megatron-Core, under torchrun: ``train.py OUT CASE…``.

A case is JSON: a name, what the plugin does (``off``: it is never imported; ``instrument``: the public
function is called; ``register``: what the autoload does), and the training's settings. Each runs in
a process forked from one that has imported Megatron and nothing of ours, so that no case pays for
the import again or sees another.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import no_cuda

no_cuda.install()

import collectives  # noqa: E402

collectives.install()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

STEPS, MICRO_BATCHES, LENGTH, WORDS = 2, 2, 8, 64


class Options:
    """Of one case; what it does not say is off, or 1."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.plugin: str = case["plugin"]
        self.tp, self.pp, self.ep, self.vpp = (case.get(name, 1) for name in ("tp", "pp", "ep", "vpp"))
        self.moe, self.dist_opt, self.overlap, self.bf16, self.own_timers = (
            bool(case.get(name)) for name in ("moe", "dist_opt", "overlap", "bf16", "own_timers")
        )


class OwnTimers:
    """What a program may have in ``config.timers`` already."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, name: str, **_level: int) -> Any:
        return OwnTimer(self.calls, name)


class OwnTimer:
    def __init__(self, calls: list[str], name: str) -> None:
        self.calls, self.name = calls, name

    def start(self, barrier: bool = False) -> None:
        self.calls.append(f"+{self.name}{'!' if barrier else ''}")

    def stop(self, **_barrier: bool) -> None:
        self.calls.append(f"-{self.name}")


def build(config: TransformerConfig, options: Options) -> list[Any]:
    stages = [None] if options.vpp == 1 else list(range(options.vpp))
    chunks = []
    for stage in stages:
        where = {} if stage is None else {"ignore_virtual": False, "vp_stage": stage}
        chunks.append(
            GPTModel(
                config=config,
                transformer_layer_spec=get_gpt_layer_local_spec(
                    num_experts=config.num_moe_experts, moe_grouped_gemm=False
                ),
                vocab_size=WORDS,
                max_sequence_length=LENGTH,
                pre_process=parallel_state.is_pipeline_first_stage(**where),
                post_process=parallel_state.is_pipeline_last_stage(**where),
                position_embedding_type="rope",
                share_embeddings_and_output_weights=False,
                **({} if stage is None else {"vp_stage": stage}),
            )
        )
    ddp = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        overlap_grad_reduce=options.overlap,
        overlap_param_gather=options.overlap and options.dist_opt,
        use_distributed_optimizer=options.dist_opt,
        bucket_size=4000 if options.overlap else None,
    )
    return [DistributedDataParallel(config, ddp, chunk) for chunk in chunks]


def loss_function(output: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    loss = output.float().mean()
    return loss, {"loss": loss.detach()}


def forward_step(_data: Any, model: Any) -> Any:
    words = torch.randint(0, WORDS, (1, LENGTH))
    mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH), 1).bool()
    output = model(words, torch.arange(LENGTH)[None], mask, labels=words)
    return output, loss_function


def digest(tensors: Any) -> str:
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().float().contiguous().numpy().tobytes())
    return total.hexdigest()


def is_patched(module: str, name: str) -> bool:
    """Whether a function of Megatron's is one of ours."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return "slime_profiler_plugin" in getattr(getattr(found, "__code__", None), "co_filename", "")


def train(case: dict[str, Any], out: Path) -> None:
    """The case of this rank, and what it saw as ``rank<n>.json``."""
    options = Options(case)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if options.plugin != "off":
        from slime_profiler_plugin import timeline
        from slime_profiler_plugin.attach import megatron as attached

        timeline.start({"out": str(out)}, role="actor")
        assert timeline.on
        if options.plugin == "register":
            attached.register()
    timeout = dt.timedelta(seconds=60)
    dist.init_process_group("gloo", f"file://{out}/store", timeout, world_size=size, rank=rank)
    parallel_state.initialize_model_parallel(
        options.tp,
        options.pp,
        virtual_pipeline_model_parallel_size=options.vpp if options.vpp > 1 else None,
        expert_model_parallel_size=options.ep,
    )
    torch.manual_seed(7)
    model_parallel_cuda_manual_seed(7)
    kind = torch.bfloat16 if options.bf16 else torch.float32
    own = OwnTimers() if options.own_timers else None
    moe: dict[str, Any] = {}
    if options.moe:
        moe = {"num_moe_experts": 4, "moe_ffn_hidden_size": 32, "moe_token_dispatcher_type": "allgather"}
    config = TransformerConfig(
        num_layers=options.pp * options.vpp * (2 if options.pp == 1 else 1),
        hidden_size=16,
        num_attention_heads=2,
        ffn_hidden_size=32,
        use_cpu_initialization=True,
        tensor_model_parallel_size=options.tp,
        pipeline_model_parallel_size=options.pp,
        virtual_pipeline_model_parallel_size=options.vpp if options.vpp > 1 else None,
        expert_model_parallel_size=options.ep,
        add_bias_linear=False,
        gated_linear_unit=True,
        pipeline_dtype=kind,
        params_dtype=kind,
        bf16=options.bf16,
        gradient_accumulation_fusion=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        finalize_model_grads_func=finalize_model_grads,
        timers=own,
        **moe,
    )
    model = build(config, options)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=1e-3,
            bf16=options.bf16,
            params_dtype=kind,
            use_distributed_optimizer=options.dist_opt,
            clip_grad=0.1,
            log_num_zeros_in_grad=True,
        ),
        model,
    )
    config.grad_scale_func = optimizer.scale_loss
    if options.overlap:
        stops = [chunk.no_sync for chunk in model]
        config.no_sync_func = stops if len(stops) > 1 else stops[0]
    if options.plugin == "instrument":
        assert attached.instrument(config, optimizer)

    torch.manual_seed(100 + parallel_state.get_data_parallel_rank())
    forward_backward = get_forward_backward_func()
    losses, gradients = [], []
    for step in range(STEPS):
        for chunk in model:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        results = forward_backward(
            forward_step_func=forward_step,
            data_iterator=[iter(())] * len(model),
            model=model,
            num_microbatches=MICRO_BATCHES,
            seq_length=LENGTH,
            micro_batch_size=1,
            forward_only=False,
        )
        losses += [result["loss"].item().hex() for result in results]
        gradients.append(digest(p.main_grad for chunk in model for p in chunk.parameters()))
        _, norm, zeros = optimizer.step()
        losses.append(f"step {step}: norm {float(norm).hex()}, zeros {zeros}")

    told = {
        "losses": losses,
        "gradients": gradients,
        "parameters": digest(p for chunk in model for p in chunk.parameters()),
        "collectives": collectives.SEEN,
        "imported": sorted(name for name in sys.modules if name.startswith("slime_profiler")),
        "patched": [name for module, name in case.get("targets", ()) if is_patched(module, name)],
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "timers": own.calls if own else None,
        "config": [type(config.timers).__name__, type(config.finalize_model_grads_func).__name__],
    }
    if options.plugin != "off":
        timeline.stop()
    (out / f"rank{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


def run(case: dict[str, Any], out: Path) -> int:
    """The case in a process of its own; its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        train(case, out)
    except BaseException:  # noqa: BLE001 - the end of this process
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    for text in sys.argv[2:]:
        case = json.loads(text)
        folder = Path(sys.argv[1], case["name"])
        folder.mkdir(exist_ok=True)  # by whichever rank comes first
        code = run(case, folder)
        if code:
            sys.exit(f"{case['name']}: exit code {code}")
