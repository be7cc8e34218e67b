"""Sampling. The same weights give the same tokens, in whichever process they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from ._model import Parameters, logits_of
from ._settings import Sample, Settings

if TYPE_CHECKING:
    from torch import Tensor

#: Next-token logits after a prompt, shape (vocabulary,). Wrong once the weights have changed.
PrefixCache: TypeAlias = "dict[tuple[int, ...], Tensor]"


def generate_responses(
    parameters: Parameters, samples: Sequence[Sample], settings: Settings, cache: PrefixCache
) -> list[list[int]]:
    """One response of ``settings.new_tokens`` tokens per sample.

    Each sample draws from its own generator, seeded by (seed, rollout, index); the samples
    must be the same batch wherever their tokens are to be the same.
    """
    import torch

    with torch.no_grad():
        draws = [
            torch.Generator().manual_seed(settings.random("token", s.rollout, s.index).getrandbits(63))
            for s in samples
        ]
        tokens = torch.tensor([s.prompt for s in samples], device=settings.device)
        logits = torch.stack([_prompt_logits(parameters, s.prompt, settings.device, cache) for s in samples])
        for number in range(settings.new_tokens):
            if number:
                logits = logits_of(parameters, tokens)[:, -1]
            shares = logits.double().softmax(-1).cpu()
            drawn = [torch.multinomial(p, 1, generator=g) for p, g in zip(shares, draws, strict=True)]
            tokens = torch.cat([tokens, torch.stack(drawn).to(tokens.device)], dim=1)
        return tokens[:, settings.prompt_tokens :].tolist()


def _prompt_logits(parameters: Parameters, prompt: list[int], device: str, cache: PrefixCache) -> Tensor:
    import torch

    key = tuple(prompt)
    if key not in cache:
        cache[key] = logits_of(parameters, torch.tensor([prompt], device=device))[0, -1]
    return cache[key]
