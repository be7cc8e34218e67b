"""An inference engine: generates with the weights it was sent. Knows no Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.phases import define_phase

from ._generate import PrefixCache, generate_responses
from ._group import BroadcastGroup, join_store
from ._model import init_parameters
from ._probe import Probe, probe_model
from ._settings import Sample, Settings
from ._sync import TRANSPORT
from ._weights import Bucket, load_tensors

if TYPE_CHECKING:
    from torch import Tensor

define_phase("engine_generate", roles=("engine",), doc="Generate the responses of one batch of samples.")


class Engine:
    """Generates for the rollout manager, and takes buckets from the trainers' rank 0.

    Its first weights are random and not the trainers': before the first sync it is wrong.
    """

    def __init__(self, settings: Settings, index: int) -> None:
        import torch

        # As in the trainers: the same sums in the same order.
        torch.set_num_threads(1)
        self._settings = settings
        self._index = index
        self._parameters = init_parameters(settings.seed + 1 + index, settings.device)
        self._cache: PrefixCache = {}
        self._group: BroadcastGroup | None = None
        self._paused = False
        self._version: str | None = None

    def connect(self, port: int, rank: int, size: int) -> None:
        """Join the group that weights travel through, as its rank `rank` of `size`."""
        self._group = BroadcastGroup(join_store(port), rank, size, self._settings.device)

    def pause_generation(self, _sync: Mapping[str, Any]) -> None:
        """Refuse to generate until `continue_generation`."""
        self._paused = True

    def continue_generation(self, _sync: Mapping[str, Any]) -> None:
        """Generate again."""
        self._paused = False

    def flush_cache(self, sync: Mapping[str, Any]) -> None:
        """Forget what was computed with the old weights. `sync`: fields that say for which sync."""
        with timeline.phase("engine_flush", engine=self._index, **sync):
            self._cache.clear()

    def receive_bucket(self, bucket: Bucket) -> None:
        """Receive the bucket's tensors through the group and load them.

        Raises `RuntimeError` unless generation is paused: tokens of one response would
        come from two models.
        """
        import torch

        if self._group is None or not self._paused:
            raise RuntimeError(f"engine {self._index} is not connected and paused: it takes no weights")
        about = {**bucket.fields(), "transport": TRANSPORT, "engine": self._index}
        with timeline.phase("engine_receive", **about):
            tensors: list[Tensor] = [
                torch.empty(shape, dtype=getattr(torch, dtype), device=self._settings.device)
                for shape, dtype in zip(bucket.shapes, bucket.dtypes, strict=True)
            ]
            self._group.broadcast(tensors)
        with timeline.phase("engine_load", **about):
            load_tensors(self._parameters, dict(zip(bucket.names, tensors, strict=True)))
            self._version = bucket.weight_version

    def weight_version(self) -> str | None:
        """Version of the last bucket that was loaded; ``None`` before the first."""
        return self._version

    def generate(self, samples: Sequence[Sample]) -> list[list[int]]:
        """One response per sample of one rollout. Raises `RuntimeError` while paused."""
        if self._paused:
            raise RuntimeError(f"engine {self._index} is paused: it generates nothing")
        with (
            timeline.rollout(samples[0].rollout),
            timeline.phase(
                "engine_generate",
                engine=self._index,
                samples=len(samples),
                weight_version=self._version,
            ),
        ):
            return generate_responses(self._parameters, samples, self._settings, self._cache)

    def probe(self) -> Probe:
        """What this engine's model says to the fixed prompts."""
        return probe_model(self._parameters, self._settings)
