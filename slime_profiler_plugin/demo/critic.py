"""One data-parallel rank of the critic: learns what reward a response will get. Knows no Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from slime_profiler_plugin._timeline import timeline

from . import _group
from ._group import Store
from ._learner import Learner, batch_samples
from ._model import logits_of
from ._settings import Sample, Settings

if TYPE_CHECKING:
    from torch import Tensor

#: Away from the seeds of the actor and the engines.
_SEED_OFFSET: Final = 1000


class Critic:
    """A rank of the critic's world. `join`, `train` and `close` are collective."""

    def __init__(self, settings: Settings, rank: int) -> None:
        self._settings = settings
        self._rank = rank
        self._learner = Learner(settings, settings.seed + _SEED_OFFSET)

    def join(self, store: Store) -> None:
        """Enter the world that meets in `store`."""
        _group.init_world(store, self._rank, self._settings.trainers, self._settings.device)

    def train(self, rollout: int, fetch: Callable[[], Sequence[Sample]]) -> list[float]:
        """Train on this rank's samples of one rollout; `fetch` waits for them.

        Gives each sample's value as it was before.
        """
        import torch

        timeline.export_window()
        timeline.set_rollout(rollout)
        with timeline.phase("train_wait"):
            samples = fetch()
        with timeline.phase("data_preprocess"):
            tokens, rewards = batch_samples(samples, self._settings.device)
        with timeline.phase("values"), torch.no_grad():
            values: list[float] = self._values(tokens).tolist()
        self._learner.train(self._loss, tokens, rewards)
        return values

    def close(self) -> None:
        """Write the last profiler window, then leave the world."""
        timeline.export_window()
        _group.leave_world()

    def _values(self, tokens: Tensor) -> Tensor:
        # One of the model's outputs at the last token stands for the value.
        return logits_of(self._learner.parameters, tokens)[:, -1, 0]

    def _loss(self, tokens: Tensor, rewards: Tensor) -> Tensor:
        return (self._values(tokens) - rewards).square().mean()
