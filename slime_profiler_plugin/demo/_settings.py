"""What a demo run is made of: how much of everything, and the seed of it all."""

from __future__ import annotations

import random
from typing import Final, Literal, TypeAlias, get_args

import msgspec

#: How weights travel from trainers to engines, in the timeline's vocabulary.
Transport: TypeAlias = Literal["nccl", "ipc", "disk", "disk_delta"]
TRANSPORTS: Final[tuple[Transport, ...]] = get_args(Transport)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Size and seed of a run. The same settings give the same tokens, losses and weights."""

    seed: int = 0
    rollouts: int = 3
    trainers: int = 2
    engines: int = 2
    #: Prompts per rollout and trainer rank, and samples drawn for each of them.
    prompts: int = 4
    samples_per_prompt: int = 4
    prompt_tokens: int = 8
    new_tokens: int = 16
    #: Optimizer steps per rollout, and micro-batches in each.
    steps: int = 2
    micro_batches: int = 2
    learning_rate: float = 3e-3
    #: A weight sync sends buckets of at most this many bytes (a larger tensor goes alone).
    bucket_bytes: int = 262_144
    transport: Transport = "nccl"
    #: Where the disk transports publish weights: a folder that every process sees.
    weights_folder: str = ""
    #: Generate rollout r + 1 while rollout r is trained on.
    overlap: bool = False
    #: Rollouts from one weight sync to the next.
    update_weights_interval: int = 1
    #: Train a critic beside the actor; the actor's advantages are then over its values.
    critic: bool = False
    #: The engine, and the trainer rank, that dies in the middle of the run and is started again.
    restart_engine: int | None = None
    restart_rank: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Raise `ValueError` naming the setting that cannot work, and what is allowed."""
        least = {
            "rollouts": 1,
            "trainers": 1,
            "engines": 0,
            "prompts": 1,
            "samples_per_prompt": 1,
            "prompt_tokens": 1,
            "new_tokens": 1,
            "steps": 1,
            "micro_batches": 1,
            "bucket_bytes": 1,
            "update_weights_interval": 1,
        }
        for name, minimum in least.items():
            if getattr(self, name) < minimum:
                raise ValueError(f"{name} is {getattr(self, name)}: at least {minimum} is needed")
        for name, count in {"restart_engine": self.engines, "restart_rank": self.trainers}.items():
            number = getattr(self, name)
            if number is not None and not 0 <= number < count:
                raise ValueError(f"{name} is {number}: there are {count}, counted from 0")
        if self.restart_rank is not None and self.trainers == 1:
            raise ValueError(
                "restart_rank with 1 trainer: no rank lives on whose state the new one could take"
            )
        if self.transport == "ipc" and self.engines > self.trainers:
            raise ValueError(
                f"{self.engines} engines for {self.trainers} trainers: over ipc each engine shares the "
                "device of a trainer rank, which sends it the weights"
            )
        if self.samples_per_rank < self.steps * self.micro_batches:
            raise ValueError(
                f"{self.samples_per_rank} samples per rank are too few for {self.steps} steps of "
                f"{self.micro_batches} micro-batches"
            )

    @property
    def samples_per_rank(self) -> int:
        """Samples that one trainer rank trains on per rollout."""
        return self.prompts * self.samples_per_prompt

    @property
    def restarts_after(self) -> int:
        """The rollout between whose training and whose weight sync something dies."""
        return self.rollouts // 2

    def random(self, *what: object) -> random.Random:
        """A generator that depends on the seed and on `what` only, in any process."""
        return random.Random("/".join(map(str, (self.seed, *what))))


class Sample(msgspec.Struct, kw_only=True):
    """One prompt and what was generated for it. `index` is unique within its rollout."""

    rollout: int | str
    index: int
    #: Samples of one group answer the same prompt.
    group: int
    prompt: list[int]
    response: list[int] = []
    reward: float = 0.0


def make_samples(settings: Settings, rollout: int | str, vocabulary: int) -> list[Sample]:
    """The samples of a rollout, not generated yet: random prompts, each several times."""
    samples = []
    for group in range(settings.prompts * settings.trainers):
        draw = settings.random("prompt", rollout, group)
        prompt = [draw.randrange(vocabulary) for _ in range(settings.prompt_tokens)]
        samples += [
            Sample(rollout=rollout, index=group * settings.samples_per_prompt + i, group=group, prompt=prompt)
            for i in range(settings.samples_per_prompt)
        ]
    return samples


def reward_of(sample: Sample) -> float:
    """Between -1 and 1: the share of even tokens in the response less that of odd ones."""
    even = sum(token % 2 == 0 for token in sample.response)
    return (2 * even - len(sample.response)) / len(sample.response)
