"""What Megatron is known to do in one step, as outlines of phases."""

from __future__ import annotations

from textwrap import indent


def _finalize(groups: int, *, overlapped: bool = False) -> str:
    """Of `groups` groups of gradients, begun in the backward where they overlap."""
    group = "grad_sync_finish\n" + ("" if overlapped else "  grad_sync_start\n")
    rest = "embedder_grad_sync\nnon_tp_grad_sync\nembedding_grad_sync\n"
    return "finalize_grads\n" + indent("grad_sync\n" + indent(group * groups, "  ") + rest, "  ")


def step(middle: str, *parts: str, chunks: int = 1, groups: int = 1, overlapped: bool = False) -> str:
    """One step: `middle` lies before the gradients' end, `parts` are those of the optimizer."""
    inside = middle + _finalize(groups, overlapped=overlapped)
    zeros = "zero_grad\n" * (chunks + 1)  # of each chunk's buffer, and the optimizer's
    return (
        zeros
        + "forward_backward\n"
        + indent(inside, "  ")
        + "optimizer\n"
        + indent("\n".join(parts), "  ")
        + "\n"
    )


_MICRO = "forward\nbackward\n"
_BEGIN = ("optimizer_copy_grads", "optimizer_grad_norm", "optimizer_clip", "optimizer_count_zeros")
_PLAIN = (*_BEGIN, "optimizer_inner_step")
_COPIED = (*_PLAIN, "optimizer_copy_params")
_MOE_FORWARD = "forward\n" + "  ep_dispatch\n  ep_combine\n" * 2

_BOTH = (
    "forward-send-forward-recv",
    "backward-send-backward-recv",
    "forward-backward-send-forward-backward-recv",
)
_FORWARD, _BACKWARD, _TOGETHER = (f"pp_send_recv {timer}\n" for timer in _BOTH)

_PP_FIRST = step(
    "forward\npp_send forward-send\nforward\npp_send_recv forward-send-backward-recv\n"
    "backward\npp_recv backward-recv\nbackward\n",
    *_PLAIN,
)
_PP_LAST = step(
    "pp_recv forward-recv\nforward\nbackward\npp_send_recv backward-send-forward-recv\n"
    "forward\nbackward\npp_send backward-send\n",
    *_PLAIN,
)
_VPP_FIRST = step(
    f"forward\n{_FORWARD}" * 4 + "pp_recv backward-recv\n" + f"backward\n{_BACKWARD}" * 4,
    *_PLAIN,
    chunks=2,
    groups=2,
)
_VPP_LAST = step(
    f"pp_recv forward-recv\nforward\n{_FORWARD}forward\n{_TOGETHER}"
    + f"forward\nbackward\n{_TOGETHER}" * 2
    + f"backward\n{_BACKWARD}" * 2,
    *_PLAIN,
    chunks=2,
    groups=2,
)

#: Gathered before the first module that needs them; the next group is asked for then.
_GATHERED = "forward\n  param_sync_finish\n    param_sync_start\n    param_sync_start\n  param_sync_finish\n"
_SENT = "backward\n  grad_sync_start\n  grad_sync_start\n"
#: The first step learns which gradients there are, and reduces them at the end.
_OVERLAPPED = (
    step(_GATHERED + "backward\n" + _MICRO, *_COPIED, "param_gather", groups=2),
    step(_GATHERED + "backward\n" + "forward\n" + _SENT, *_COPIED, "param_gather", groups=2, overlapped=True),
)

#: By case and rank: the outlines of the two steps.
SEQUENCES: dict[str, dict[int, tuple[str, str]]] = {
    name: {
        rank: outlines if isinstance(outlines, tuple) else (outlines, outlines) for rank, outlines in ranks
    }
    for name, ranks in {
        "dp2": enumerate((step(_MICRO * 2, *_PLAIN),) * 2),
        "tp2": enumerate((step(_MICRO * 2, *_PLAIN),) * 2),
        "pp2": enumerate((_PP_FIRST, _PP_LAST)),
        "vpp2": enumerate((_VPP_FIRST, _VPP_LAST)),
        "distributed": enumerate(
            (step(_MICRO * 2, *_COPIED, "param_gather\n  param_sync_start"),) * 2,
        ),
        "overlapped": enumerate((_OVERLAPPED,) * 2),
        "bf16": enumerate((step(_MICRO * 2, *_COPIED, groups=2),) * 2),
        # Two optimizers in a chain: the experts' gradients are theirs alone.
        "ep2": enumerate(
            (
                step(
                    (_MOE_FORWARD + "backward\n") * 2,
                    *("optimizer_copy_grads",) * 2,
                    "optimizer_grad_norm",
                    *("optimizer_clip",) * 2,
                    "optimizer_count_zeros",
                    *("optimizer_inner_step",) * 2,
                    groups=2,
                ),
            )
            * 2
        ),
    }.items()
}
