"""One data-parallel rank of the actor: trains the small GPT with policy gradients. Knows no Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from slime_profiler_plugin._timeline import timeline

from . import _group
from ._group import Store
from ._learner import Learner, batch_samples
from ._model import response_log_probs
from ._probe import Probe, probe_model
from ._settings import Sample, Settings
from .sync import EngineCalls, Lock, SyncReport, WeightSync

if TYPE_CHECKING:
    from torch import Tensor

_CLIP = 0.2
#: Waits for a rank's samples, and for the critic's value of each if there is a critic.
Fetch: TypeAlias = "Callable[[], tuple[Sequence[Sample], Sequence[float] | None]]"


class TrainReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank did with one rollout. `losses`: mean loss of each optimizer step."""

    rollout: int
    samples: int
    mean_reward: float
    losses: list[float]


class Trainer:
    """A rank of the trainers' world. `join`, `train`, `update_weights` and `close` are collective.

    The timeline should be started before, with this rank's identity, if it is to record.
    """

    def __init__(self, settings: Settings, rank: int, lock: Lock) -> None:
        self._settings = settings
        self._rank = rank
        self._lock = lock
        self._learner = Learner(settings, settings.seed)
        self._sync: WeightSync | None = None

    @property
    def model_bytes(self) -> int:
        """Size of the model's weights."""
        return self._learner.model_bytes

    def join(self, store: Store, state_from: int | None = None) -> None:
        """Enter the world that meets in `store`.

        Again after a rank has died, with `state_from` a rank that has not: all go on from its state.
        """
        import torch.distributed as dist

        next_sync = 0
        if self._sync is not None:
            next_sync = self._sync.next_sync
            _group.leave_world()
        barriers = _group.init_world(store, self._rank, self._settings.trainers, self._settings.device)
        if state_from is not None:
            state = [self._learner.state()]
            dist.broadcast_object_list(state, src=state_from, group=barriers)
            self._learner.load_state(state[0])
        self._sync = WeightSync(self._learner.parameters, barriers, self._lock, self._settings, next_sync)

    def train(self, rollout: int, fetch: Fetch) -> TrainReport:
        """Train on this rank's samples of one rollout."""
        # Before the rollout's samples are there this rank has nothing else to do.
        timeline.export_window()
        timeline.set_rollout(rollout)
        with timeline.phase("train_wait"):
            samples, values = fetch()
        with timeline.phase("data_preprocess"):
            tokens, rewards = batch_samples(samples, self._settings.device)
        with timeline.phase("log_probs"):
            old = self._log_probs(tokens)
        with timeline.phase("advantages"):
            advantages = self._advantages(rewards, values)
        losses = self._learner.train(self._loss, tokens, old, advantages)
        return TrainReport(
            rollout=rollout,
            samples=len(samples),
            mean_reward=float(rewards.mean()),
            losses=losses,
        )

    def update_weights(self, engines: Sequence[EngineCalls]) -> SyncReport:
        """Send the weights to the engines."""
        assert self._sync is not None, "not joined"
        return self._sync.run(engines)

    def probe(self) -> Probe:
        """What this rank's model says to the fixed prompts."""
        return probe_model(self._learner.parameters, self._settings)

    def close(self) -> None:
        """Write the last profiler window, then leave the world."""
        timeline.export_window()
        _group.leave_world()

    def _log_probs(self, tokens: Tensor) -> Tensor:
        import torch

        with torch.no_grad():
            return response_log_probs(self._learner.parameters, tokens, self._settings.prompt_tokens)

    def _advantages(self, rewards: Tensor, values: Sequence[float] | None) -> Tensor:
        import torch

        if values is not None:
            gains = rewards - torch.tensor(values, device=rewards.device)
            return (gains - gains.mean()) / (gains.std(correction=0) + 1e-6)
        # A sample is as good as it beats the others that answer the same prompt.
        groups = rewards.view(-1, self._settings.samples_per_prompt)
        centred = groups - groups.mean(-1, keepdim=True)
        return (centred / (groups.std(-1, keepdim=True, correction=0) + 1e-6)).flatten()

    def _loss(self, tokens: Tensor, old: Tensor, advantages: Tensor) -> Tensor:
        import torch

        new = response_log_probs(self._learner.parameters, tokens, self._settings.prompt_tokens)
        ratio = (new - old).exp()
        clipped = ratio.clamp(1 - _CLIP, 1 + _CLIP)
        gain = advantages[:, None]
        return -torch.minimum(ratio * gain, clipped * gain).mean()


def train_loop(
    trainer: Trainer,
    engines: Sequence[EngineCalls],
    rollouts: Iterable[int],
    samples_of: Callable[[int], Sequence[Sample]],
    done: Callable[[TrainReport, SyncReport], None],
) -> None:
    """The loop of one joined rank without a driver: a first sync, then train and sync per rollout."""
    trainer.update_weights(engines)
    for rollout in rollouts:

        def fetch(rollout: int = rollout) -> tuple[Sequence[Sample], None]:
            return samples_of(rollout), None

        done(trainer.train(rollout, fetch), trainer.update_weights(engines))
