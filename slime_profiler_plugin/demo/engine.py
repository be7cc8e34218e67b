"""An inference engine: generates with the weights it was sent. Knows no Ray."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.phases import define_phase

from ._generate import PrefixCache, generate_responses
from ._group import BroadcastGroup, join_store
from ._model import count_bytes, init_parameters
from ._probe import Probe, probe_model
from ._settings import Sample, Settings
from ._weights import Bucket, engine_tensors, load_tensors
from .sync import (
    list_files,
    open_handle,
    read_delta,
    read_shards,
    receive_tensors,
    release_shared,
    version_folder,
)

if TYPE_CHECKING:
    from torch import Tensor

define_phase("engine_generate", roles=("engine",), doc="Generate the responses of one batch of samples.")


class Engine:
    """Generates for the rollout manager, and takes the trainers' weights.

    Whatever loads them raises `RuntimeError` unless generation is paused: tokens of one response would
    come from two models. Arguments named `sync` are the fields of the sync that asks.

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
        self._pulled: TemporaryDirectory[str] | None = None

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
        """Forget what was computed with the old weights."""
        with timeline.phase("engine_flush", engine=self._index, **sync):
            self._cache.clear()

    def receive_bucket(self, bucket: Bucket, handle: bytes | None = None) -> None:
        """Take a bucket's tensors from the group, or from the memory that `handle` opens, and load them."""
        self._need_pause()
        about = {**bucket.fields(), "engine": self._index}
        with timeline.phase("engine_receive", **about):
            tensors = self._receive(bucket, handle)
        with timeline.phase("engine_load", **about):
            self._load(dict(zip(bucket.names, tensors, strict=True)), bucket.weight_version)
            if handle is not None:
                release_shared(self._settings.device)

    def load_shards(self, sync: Mapping[str, Any]) -> None:
        """Load whole published weights. Raises `WeightsError` when they cannot be."""
        self._need_pause()
        with timeline.phase("engine_load", **self._about_model(sync)):
            folder = version_folder(self._settings, sync["weight_version"])
            self._load(read_shards(folder, self._parameters), sync["weight_version"])

    def pull_delta(self, sync: Mapping[str, Any]) -> None:
        """Fetch published differences, for `load_delta`. Raises `WeightsError` when a file is missing."""
        files = list_files(version_folder(self._settings, sync["weight_version"]))
        size = sum(path.stat().st_size for path in files)
        with timeline.phase("engine_pull", engine=self._index, bytes=size, **sync):
            self._pulled = TemporaryDirectory(prefix="spe")
            for path in files:
                shutil.copy(path, self._pulled.name)

    def load_delta(self, sync: Mapping[str, Any]) -> None:
        """Apply the differences that were fetched. Raises `WeightsError` when they cannot be."""
        self._need_pause()
        assert self._pulled is not None, "nothing was fetched"
        with timeline.phase("engine_load", **self._about_model(sync)):
            tensors = read_delta(Path(self._pulled.name), self._parameters, self._version)
            self._load(tensors, sync["weight_version"])
        self._pulled.cleanup()
        self._pulled = None

    def weight_version(self) -> str | None:
        """Version of the weights that were loaded last; ``None`` before the first."""
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

    def _need_pause(self) -> None:
        if not self._paused:
            raise RuntimeError(f"engine {self._index} is not paused: it takes no weights")

    def _receive(self, bucket: Bucket, handle: bytes | None) -> list[Tensor]:
        if handle is not None:
            return open_handle(handle, bucket)
        if self._group is None:
            raise RuntimeError(f"engine {self._index} is not connected: it receives no weights")
        return receive_tensors(self._group, bucket, self._settings.device)

    def _load(self, tensors: Mapping[str, Tensor], weight_version: str) -> None:
        load_tensors(self._parameters, tensors)
        self._version = weight_version

    def _about_model(self, sync: Mapping[str, Any]) -> dict[str, Any]:
        size, count = count_bytes(self._parameters), len(engine_tensors(self._parameters))
        return {**sync, "engine": self._index, "bytes": size, "tensors": count}
