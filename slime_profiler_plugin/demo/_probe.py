"""What a model says to fixed prompts, the same in every process that has the same weights."""

from __future__ import annotations

import msgspec

from ._generate import generate_responses
from ._model import VOCABULARY, Parameters, logits_of
from ._settings import Settings, make_samples
from ._weights import checksum_tensors


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens drawn from fixed seeds, the logits behind them, and a checksum of each engine tensor."""

    tokens: list[list[int]]
    logits: list[list[float]]
    checksums: dict[str, str]


def probe_model(parameters: Parameters, settings: Settings) -> Probe:
    """Ask a model the same as every other process of the run asks its own."""
    import torch

    samples = make_samples(settings, "probe", VOCABULARY)[:: settings.samples_per_prompt]
    tokens = generate_responses(parameters, samples, settings, {})
    prompts = torch.tensor([s.prompt for s in samples], device=settings.device)
    with torch.no_grad():
        logits = logits_of(parameters, prompts)[:, -1]
    return Probe(tokens=tokens, logits=logits.tolist(), checksums=checksum_tensors(parameters))
