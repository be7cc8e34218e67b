"""Megatron's timers and the phases they are.

The names are the same in Megatron-Core 0.16, in the commit that slime pins and in 0.20; only
the lines they stand in move.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class TimerName(NamedTuple):
    """A phase, and the level at which Megatron asks for it."""

    phase: str
    #: 1: once per step, or part of one. 2: in each micro-batch.
    level: int
    #: Several timers are this phase: its records name theirs.
    named: bool = False


#: By Megatron's name.
TIMERS: Final[dict[str, TimerName]] = {
    "forward-backward": TimerName("forward_backward", 1),
    "forward-compute": TimerName("forward", 2),
    "backward-compute": TimerName("backward", 2),
    "forward-recv": TimerName("pp_recv", 2, named=True),
    "backward-recv": TimerName("pp_recv", 2, named=True),
    "forward-send": TimerName("pp_send", 2, named=True),
    "backward-send": TimerName("pp_send", 2, named=True),
    "forward-send-backward-recv": TimerName("pp_send_recv", 2, named=True),
    "backward-send-forward-recv": TimerName("pp_send_recv", 2, named=True),
    "forward-send-forward-recv": TimerName("pp_send_recv", 2, named=True),
    "backward-send-backward-recv": TimerName("pp_send_recv", 2, named=True),
    "forward-backward-send-forward-backward-recv": TimerName("pp_send_recv", 2, named=True),
    "all-grads-sync": TimerName("grad_sync", 1),
    "conditional-embedder-grads-all-reduce": TimerName("embedder_grad_sync", 1),
    "non-tensor-parallel-grads-all-reduce": TimerName("non_tp_grad_sync", 1),
    "embedding-grads-all-reduce": TimerName("embedding_grad_sync", 1),
    "optimizer-copy-to-main-grad": TimerName("optimizer_copy_grads", 1),
    "optimizer-unscale-and-check-inf": TimerName("optimizer_check_inf", 1),
    "optimizer-clip-main-grad": TimerName("optimizer_clip", 1),
    "optimizer-count-zeros": TimerName("optimizer_count_zeros", 1),
    "optimizer-inner-step": TimerName("optimizer_inner_step", 1),
    "optimizer-copy-main-to-model-params": TimerName("optimizer_copy_params", 1),
    "params-all-gather": TimerName("param_gather", 1),
}
