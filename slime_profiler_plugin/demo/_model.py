"""A small GPT, as a mapping of named parameters and functions over it.

Functions instead of modules: nothing here needs torch until it is called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

#: Tensors by name; the order counts.
Parameters: TypeAlias = "Mapping[str, Tensor]"
VOCABULARY: Final = 32
CONTEXT: Final = 64
_WIDTH: Final = 96
_HEADS: Final = 4
_LAYERS: Final = 3


def _shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"tokens": (VOCABULARY, _WIDTH), "positions": (CONTEXT, _WIDTH)}
    for layer in range(_LAYERS):
        block = f"blocks.{layer}"
        shapes |= {
            f"{block}.attention.norm": (_WIDTH,),
            f"{block}.attention.qkv": (3 * _WIDTH, _WIDTH),
            f"{block}.attention.out": (_WIDTH, _WIDTH),
            f"{block}.mlp.norm": (_WIDTH,),
            f"{block}.mlp.up": (4 * _WIDTH, _WIDTH),
            f"{block}.mlp.down": (_WIDTH, 4 * _WIDTH),
        }
    return shapes | {"norm": (_WIDTH,), "head": (VOCABULARY, _WIDTH)}


def init_parameters(seed: int, device: str) -> dict[str, Tensor]:
    """Fresh float32 parameters that require gradients, equal for equal seeds on any device."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    parameters = {}
    for name, shape in _shapes().items():
        if len(shape) == 1:
            value = torch.ones(shape)
        else:
            value = torch.randn(shape, generator=generator) / math.sqrt(shape[-1])
        parameters[name] = value.to(device).requires_grad_()
    return parameters


def count_bytes(parameters: Parameters) -> int:
    """Size of the parameters in bytes."""
    return sum(p.numel() * p.element_size() for p in parameters.values())


def logits_of(parameters: Parameters, tokens: Tensor) -> Tensor:
    """Next-token logits.

    `tokens`: int64 (batch, length ≤ `CONTEXT`). Returns float32 (batch, length, `VOCABULARY`).
    """
    import torch
    from torch.nn import functional

    batch, length = tokens.shape

    def normed(x: Tensor, name: str) -> Tensor:
        return functional.layer_norm(x, (_WIDTH,), parameters[name])

    x = parameters["tokens"][tokens] + parameters["positions"][torch.arange(length, device=tokens.device)]
    for layer in range(_LAYERS):
        block = f"blocks.{layer}"
        qkv = normed(x, f"{block}.attention.norm") @ parameters[f"{block}.attention.qkv"].T
        query, key, value = qkv.view(batch, length, 3, _HEADS, _WIDTH // _HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended = attended.transpose(1, 2).reshape(batch, length, _WIDTH)
        x = x + attended @ parameters[f"{block}.attention.out"].T
        hidden = functional.gelu(normed(x, f"{block}.mlp.norm") @ parameters[f"{block}.mlp.up"].T)
        x = x + hidden @ parameters[f"{block}.mlp.down"].T
    return normed(x, "norm") @ parameters["head"].T


def response_log_probs(parameters: Parameters, tokens: Tensor, prompt_tokens: int) -> Tensor:
    """Log-probabilities of the tokens after the prompt.

    `tokens`: int64 (batch, length). Returns float32 (batch, length - prompt_tokens).
    """
    logits = logits_of(parameters, tokens)[:, prompt_tokens - 1 : -1]
    return logits.log_softmax(-1).gather(-1, tokens[:, prompt_tokens:, None]).squeeze(-1)
