"""A model of a few kilobytes that slime's converters know, without Transformer Engine.

slime's image builds layers of Transformer Engine, and its converters go by their parameters' names. These
have the same names and their own arithmetic.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel import ColumnParallelLinear
from megatron.core.transformer.identity_op import IdentityOp
from megatron.training import get_args
from megatron.training.arguments import core_transformer_config_from_args


class NormedLinear(ColumnParallelLinear):
    """A norm and a linear layer as one module."""

    def __init__(self, input_size: int, output_size: int, *, config: Any, **more: Any) -> None:
        super().__init__(input_size, output_size, config=config, **more)
        self.layer_norm_weight = torch.nn.Parameter(torch.ones(input_size, dtype=config.params_dtype))
        self._epsilon = config.layernorm_epsilon

    def forward(self, x: torch.Tensor, *args: Any, **more: Any) -> Any:
        normed = F.rms_norm(x, x.shape[-1:], self.layer_norm_weight, self._epsilon)
        return super().forward(normed, *args, **more)


class PackedAttention(torch.nn.Module):
    """Causal attention over sequences that lie one behind the other, as slime packs them."""

    def __init__(self, config: Any, **_more: Any) -> None:
        super().__init__()
        self.config = config

    def forward(
        self, query: Any, key: Any, value: Any, *_args: Any, packed_seq_params: Any, **_more: Any
    ) -> Any:
        ends = packed_seq_params.cu_seqlens_q.tolist()
        repeats = query.shape[1] // key.shape[1]
        parts = []
        for begin, end in pairwise(ends):
            if end > begin:
                heads = [
                    tensor[begin:end].transpose(0, 1)[None].repeat_interleave(n, 1)
                    for tensor, n in ((query, 1), (key, repeats), (value, repeats))
                ]
                mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
                parts.append(mixed[0].transpose(0, 1))
        result = torch.cat(parts)
        return result.reshape(len(result), 1, -1)


class Experts(torch.nn.Module):
    """This rank's experts, named as Transformer Engine names a grouped layer's weights."""

    def __init__(self, config: Any, count: int) -> None:
        super().__init__()
        self.count = count
        hidden, inner, kind = config.hidden_size, config.moe_ffn_hidden_size, config.params_dtype
        for name, shape in (("linear_fc1", (2 * inner, hidden)), ("linear_fc2", (hidden, inner))):
            layer = torch.nn.Module()
            for index in range(count):
                weight = torch.nn.Parameter(torch.zeros(shape, dtype=kind))
                weight.allreduce = False  # an expert's gradient is its own ranks' alone
                weight.tensor_model_parallel = False
                layer.register_parameter(f"weight{index}", weight)
            setattr(self, name, layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x)
        for index in range(self.count):
            gate, up = F.linear(x, getattr(self.linear_fc1, f"weight{index}")).chunk(2, -1)
            total = total + F.linear(F.silu(gate) * up, getattr(self.linear_fc2, f"weight{index}"))
        return total / self.count


class AllExperts(torch.nn.Module):
    """Every token goes through all of this rank's experts: nothing is dispatched."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        count = config.num_moe_experts // parallel_state.get_expert_model_parallel_world_size()
        self.experts = Experts(config, count)

    def forward(self, x: torch.Tensor, *_args: Any, **_more: Any) -> tuple[torch.Tensor, None]:
        return self.experts(x), None


def provide(pre_process: bool = True, post_process: bool = True) -> GPTModel:
    """For slime's ``--custom-model-provider-path``."""
    args = get_args()
    config = core_transformer_config_from_args(args)
    experts = config.num_moe_experts
    config.num_moe_experts = None  # the layers around the experts are those of a dense model
    spec = get_gpt_layer_local_spec()
    parts = spec.submodules
    parts.input_layernorm = parts.pre_mlp_layernorm = IdentityOp
    parts.self_attention.submodules.linear_qkv = NormedLinear
    parts.self_attention.submodules.core_attention = PackedAttention
    parts.mlp.submodules.linear_fc1 = NormedLinear
    model = GPTModel(
        config=config,
        transformer_layer_spec=spec,
        vocab_size=args.padded_vocab_size,
        max_sequence_length=args.max_position_embeddings,
        pre_process=pre_process,
        post_process=post_process,
        position_embedding_type="rope",
        rotary_base=args.rotary_base,
        share_embeddings_and_output_weights=False,
    )
    if experts:
        config.num_moe_experts = experts
        for layer in model.decoder.layers:
            layer.mlp = AllExperts(config)
    for parameter in model.parameters():
        if not hasattr(parameter, "tensor_model_parallel"):
            parameter.tensor_model_parallel = False
    return model
