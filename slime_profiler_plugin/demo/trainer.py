"""One data-parallel rank that trains the small GPT with policy gradients. Knows no Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from slime_profiler_plugin._timeline import timeline

from . import _group
from ._generate import generate_responses
from ._group import Store
from ._model import VOCABULARY, count_bytes, init_parameters, logits_of, response_log_probs
from ._settings import Sample, Settings, make_samples
from ._sync import EngineCalls, Lock, SyncReport, WeightSync

if TYPE_CHECKING:
    from torch import Tensor

_CLIP = 0.2


class TrainReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank did with one rollout. `losses`: mean loss of each optimizer step."""

    rollout: int
    samples: int
    mean_reward: float
    losses: list[float]


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What a model says to fixed prompts: tokens drawn from fixed seeds, and its logits."""

    tokens: list[list[int]]
    logits: list[list[float]]


def probe_model(parameters: dict[str, Tensor], settings: Settings) -> Probe:
    """Ask a model the same as every other process of the run asks its own."""
    import torch

    samples = make_samples(settings, "probe", VOCABULARY)[:: settings.samples_per_prompt]
    tokens = generate_responses(parameters, samples, settings, {})
    prompts = torch.tensor([s.prompt for s in samples], device=settings.device)
    with torch.no_grad():
        logits = logits_of(parameters, prompts)[:, -1]
    return Probe(tokens=tokens, logits=logits.tolist())


class Trainer:
    """A rank of the trainers' world. Building it, `train`, `update_weights` and `close` are collective.

    The timeline should be started before, with this rank's identity, if it is to record.
    """

    def __init__(
        self, settings: Settings, rank: int, store: Store, engines: Sequence[EngineCalls], lock: Lock
    ) -> None:
        import torch

        # Several processes share the cores, and one thread sums in one order: bit-equal results.
        torch.set_num_threads(1)
        self._settings = settings
        self._rank = rank
        barriers = _group.init_world(store, rank, settings.trainers, settings.device)
        self._parameters = init_parameters(settings.seed, settings.device)
        self._optimizer = torch.optim.Adam(self._parameters.values(), lr=settings.learning_rate)
        self._sync = WeightSync(
            self._parameters,
            barriers,
            engines,
            lock,
            bucket_bytes=settings.bucket_bytes,
            device=settings.device,
        )

    @property
    def model_bytes(self) -> int:
        """Size of the model's weights."""
        return count_bytes(self._parameters)

    def train(self, rollout: int, fetch: Callable[[], Sequence[Sample]]) -> TrainReport:
        """Train on this rank's samples of one rollout; `fetch` waits for them."""
        # Before the rollout's samples are there this rank has nothing else to do.
        timeline.export_window()
        timeline.set_rollout(rollout)
        with timeline.phase("train_wait"):
            samples = fetch()
        with timeline.phase("data_preprocess"):
            tokens, rewards = self._batch(samples)
        with timeline.phase("log_probs"):
            old = self._log_probs(tokens)
        with timeline.phase("advantages"):
            advantages = self._advantages(rewards)
        chunks = (value.tensor_split(self._settings.steps) for value in (tokens, old, advantages))
        losses = [self._step(step, *values) for step, values in enumerate(zip(*chunks, strict=True))]
        return TrainReport(
            rollout=rollout,
            samples=len(samples),
            mean_reward=float(rewards.mean()),
            losses=losses,
        )

    def update_weights(self) -> SyncReport:
        """Send the weights to the engines."""
        return self._sync.run()

    def probe(self) -> Probe:
        """What this rank's model says to the fixed prompts."""
        return probe_model(self._parameters, self._settings)

    def close(self) -> None:
        """Write the last profiler window, then leave the world."""
        timeline.export_window()
        _group.leave_world()

    def _batch(self, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
        import torch

        device = self._settings.device
        tokens = torch.tensor([s.prompt + s.response for s in samples], device=device)
        return tokens, torch.tensor([s.reward for s in samples], device=device)

    def _log_probs(self, tokens: Tensor) -> Tensor:
        import torch

        with torch.no_grad():
            return response_log_probs(self._parameters, tokens, self._settings.prompt_tokens)

    def _advantages(self, rewards: Tensor) -> Tensor:
        # A sample is as good as it beats the others that answer the same prompt.
        groups = rewards.view(-1, self._settings.samples_per_prompt)
        centred = groups - groups.mean(-1, keepdim=True)
        return (centred / (groups.std(-1, keepdim=True, correction=0) + 1e-6)).flatten()

    def _step(self, step: int, tokens: Tensor, old: Tensor, advantages: Tensor) -> float:
        import torch

        count = self._settings.micro_batches
        with timeline.phase("train_step", step=step):
            self._optimizer.zero_grad()
            loss = torch.zeros((), device=tokens.device)
            with timeline.phase("forward_backward", step=step):
                chunks = (value.tensor_split(count) for value in (tokens, old, advantages))
                for micro_batch in zip(*chunks, strict=True):
                    with timeline.phase("forward", step=step):
                        part = self._loss(*micro_batch) / count
                    with timeline.phase("backward", step=step):
                        part.backward()  # type: ignore[no-untyped-call]
                    loss += part.detach()
                with timeline.phase("grad_sync", step=step, bytes=self.model_bytes):
                    self._average_gradients()
            with timeline.phase("optimizer", step=step):
                self._optimizer.step()
        return float(loss)

    def _loss(self, tokens: Tensor, old: Tensor, advantages: Tensor) -> Tensor:
        import torch

        ratio = (response_log_probs(self._parameters, tokens, self._settings.prompt_tokens) - old).exp()
        clipped = ratio.clamp(1 - _CLIP, 1 + _CLIP)
        gain = advantages[:, None]
        return -torch.minimum(ratio * gain, clipped * gain).mean()

    def _average_gradients(self) -> None:
        import torch
        import torch.distributed as dist

        gradients = [p.grad for p in self._parameters.values() if p.grad is not None]
        flat = torch.cat([g.flatten() for g in gradients])
        dist.all_reduce(flat)
        flat /= self._settings.trainers
        for gradient, mean in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))


def train_loop(
    trainer: Trainer,
    rollouts: Iterable[int],
    samples_of: Callable[[int], Sequence[Sample]],
    done: Callable[[TrainReport, SyncReport], None],
) -> None:
    """The loop of one rank without a driver: a first sync, then train and sync per rollout."""
    trainer.update_weights()
    for rollout in rollouts:

        def fetch(rollout: int = rollout) -> Sequence[Sample]:
            return samples_of(rollout)

        done(trainer.train(rollout, fetch), trainer.update_weights())
