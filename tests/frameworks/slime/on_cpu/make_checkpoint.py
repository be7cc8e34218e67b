"""Writes a tiny model as slime takes it: ``make_checkpoint.py FOLDER JSON``.

A Hugging Face folder with configuration, tokenizer and weights, and a file of prompts beside it. JSON names
the layers, the experts (0: none), and whether attention has biases.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import Qwen2Tokenizer

WORDS, HIDDEN, HEADS, GROUPS, INNER = 128, 32, 4, 2, 64
HEAD = HIDDEN // HEADS


def shapes(layers: int, experts: int, qkv_biases: bool) -> dict[str, tuple[int, ...]]:
    """Of every tensor, by its name in the folder."""
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (WORDS, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (WORDS, HIDDEN),
    }
    for layer in range(layers):
        here = f"model.layers.{layer}"
        found[f"{here}.input_layernorm.weight"] = (HIDDEN,)
        found[f"{here}.self_attn.q_proj.weight"] = (HEADS * HEAD, HIDDEN)
        found[f"{here}.self_attn.k_proj.weight"] = found[f"{here}.self_attn.v_proj.weight"] = (
            GROUPS * HEAD,
            HIDDEN,
        )
        found[f"{here}.self_attn.o_proj.weight"] = (HIDDEN, HEADS * HEAD)
        if qkv_biases:
            for name, heads in (("q", HEADS), ("k", GROUPS), ("v", GROUPS)):
                found[f"{here}.self_attn.{name}_proj.bias"] = (heads * HEAD,)
        if not experts:
            found[f"{here}.post_attention_layernorm.weight"] = (HIDDEN,)
        for part in [f"mlp.experts.{n}" for n in range(experts)] or ["mlp"]:
            for name in ("gate_proj", "up_proj"):
                found[f"{here}.{part}.{name}.weight"] = (INNER, HIDDEN)
            found[f"{here}.{part}.down_proj.weight"] = (HIDDEN, INNER)
    return found


def write(folder: Path, layers: int, experts: int, qkv_biases: bool) -> None:
    folder.mkdir(parents=True)
    torch.manual_seed(1)
    weights = {
        name: (torch.ones(shape) if len(shape) == 1 else torch.randn(shape) * 0.05).bfloat16()
        for name, shape in shapes(layers, experts, qkv_biases).items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    moe = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": experts,
        "moe_intermediate_size": INNER,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
    dense = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    config = {
        **(moe if experts else dense),
        "hidden_size": HIDDEN,
        "head_dim": HEAD,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS,
        "num_hidden_layers": layers,
        "vocab_size": WORDS,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    # A character is a word; transformers takes a tokenizer of this class for such a model, whatever is said.
    words = {chr(33 + n): n for n in range(94)} | {f"<{n}>": n for n in range(94, WORDS)}
    Qwen2Tokenizer(
        vocab=words, merges=[], unk_token="<94>", pad_token="<95>", eos_token="<96>"
    ).save_pretrained(folder)
    prompts = ["".join(chr(65 + (7 * line + place) % 58) for place in range(6)) for line in range(16)]
    lines = "".join(json.dumps({"input": prompt}) + "\n" for prompt in prompts)
    folder.with_suffix(".prompts.jsonl").write_text(lines)


if __name__ == "__main__":
    about = json.loads(sys.argv[2])
    write(Path(sys.argv[1]), about["layers"], about["experts"], about["qkv_biases"])
