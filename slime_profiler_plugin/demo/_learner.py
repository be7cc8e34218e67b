"""Data-parallel optimizer steps over the small GPT's parameters, with the phases of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from slime_profiler_plugin._timeline import timeline

from ._model import count_bytes, init_parameters
from ._settings import Sample, Settings

if TYPE_CHECKING:
    from torch import Tensor


class Learner:
    """One rank's parameters and their optimizer. `train` is collective in the world it belongs to."""

    def __init__(self, settings: Settings, seed: int) -> None:
        import torch

        # Several processes share the cores, and one thread sums in one order: bit-equal results.
        torch.set_num_threads(1)
        self._settings = settings
        self.parameters = init_parameters(seed, settings.device)
        self._optimizer = torch.optim.Adam(self.parameters.values(), lr=settings.learning_rate)

    @property
    def model_bytes(self) -> int:
        """Size of the parameters."""
        return count_bytes(self.parameters)

    def state(self) -> dict[str, Any]:
        """Everything that a rank which joins later must have, on the CPU."""
        parameters = {name: value.detach().cpu() for name, value in self.parameters.items()}
        return {"parameters": parameters, "optimizer": self._optimizer.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over another rank's `state`."""
        for name, value in state["parameters"].items():
            self.parameters[name].detach().copy_(value)
        self._optimizer.load_state_dict(state["optimizer"])

    def train(self, loss_of: Callable[..., Tensor], *values: Tensor) -> list[float]:
        """All optimizer steps of a rollout; `loss_of` takes one micro-batch of each of `values`.

        Gives the mean loss of each step.
        """
        chunks = (value.tensor_split(self._settings.steps) for value in values)
        return [self._step(step, loss_of, batches) for step, batches in enumerate(zip(*chunks, strict=True))]

    def _step(self, step: int, loss_of: Callable[..., Tensor], batches: Sequence[Tensor]) -> float:
        import torch

        count = self._settings.micro_batches
        with timeline.phase("train_step", step=step):
            self._optimizer.zero_grad()
            loss = torch.zeros((), device=self._settings.device)
            with timeline.phase("forward_backward", step=step):
                for micro_batch in zip(*(batch.tensor_split(count) for batch in batches), strict=True):
                    with timeline.phase("forward", step=step):
                        part = loss_of(*micro_batch) / count
                    with timeline.phase("backward", step=step):
                        part.backward()  # type: ignore[no-untyped-call]
                    loss += part.detach()
                with timeline.phase("grad_sync", step=step, bytes=self.model_bytes):
                    self._average_gradients()
            with timeline.phase("optimizer", step=step):
                self._optimizer.step()
        return float(loss)

    def _average_gradients(self) -> None:
        import torch
        import torch.distributed as dist

        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        flat = torch.cat([g.flatten() for g in gradients])
        dist.all_reduce(flat)
        flat /= self._settings.trainers
        for gradient, mean in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))


def batch_samples(samples: Sequence[Sample], device: str) -> tuple[Tensor, Tensor]:
    """Tokens, int64 (samples, prompt and response), and rewards, float32 (samples)."""
    import torch

    tokens = torch.tensor([s.prompt + s.response for s in samples], device=device)
    return tokens, torch.tensor([s.reward for s in samples], device=device)
