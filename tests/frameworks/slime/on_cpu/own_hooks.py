"""A user's own functions at slime's official hook points. They tell what they saw, so that a job shows
whether they were called as before, and what training computed.
"""

from __future__ import annotations

import hashlib
from typing import Any

import seen_calls
import torch


def digest(tensors: Any) -> str:
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def after_megatron_init(_args: Any) -> None:
    seen_calls.tell("hook", "megatron init")


def before_log_prob(_args: Any, _model: Any, store_prefix: str) -> None:
    seen_calls.tell("hook", f"before {store_prefix}log_probs")


def before_train_step(
    _args: Any, rollout_id: int, step_id: int, model: Any, _optimizer: Any, _scheduler: Any
) -> None:
    parameters = digest(parameter for chunk in model for parameter in chunk.parameters())
    seen_calls.tell("hook", f"before step {step_id} of rollout {rollout_id}: {parameters}")


def after_rollout_data(_args: Any, rollout_id: int, rollout_data: dict[str, Any]) -> None:
    for name in ("log_probs", "ref_log_probs", "advantages", "returns", "rewards", "tokens"):
        if name in rollout_data:
            values = rollout_data[name]
            told = digest(values) if isinstance(values[0], torch.Tensor) else str(values)
            seen_calls.tell("hook", f"{name} of rollout {rollout_id}: {told}")


def after_weights_are_written(_args: Any, folder: str, engines: Any) -> None:
    seen_calls.tell("hook", f"written {folder.rsplit('/', 1)[-1]} for {len(engines)} engines")


async def reward(_args: Any, sample: Any, **_more: Any) -> float:
    """Of the tokens and the sample's number: samples of one prompt are alike."""
    return float((sum(sample.tokens) + 3 * sample.index) % 7) - 3.0
