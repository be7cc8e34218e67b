"""disk_delta: the trainers publish what changed since the last version, and the engines apply it.

A baseline, which is the difference to nothing, stands for the whole weights. It is published first in
every world of trainers, and whenever an engine lacks the last version.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.demo._model import Parameters
from slime_profiler_plugin.demo._weights import (
    Part,
    convert_parts,
    count_tensor_bytes,
    engine_tensors,
    raw_bytes,
)

from ._codec import Bytes, decode_difference, encode_difference
from ._disk import check_whole
from ._files import WeightsError, file_name, list_files, pack_file, read_file, version_folder, write_file
from ._protocol import EngineCalls, Fields, Sent, ask_all
from ._rank import SyncRank

if TYPE_CHECKING:
    from torch import Tensor

_BASE = "base"


class DeltaSender:
    """Ranks take turns as over disk. Each keeps what it published last, by tensor."""

    def __init__(self, rank: SyncRank) -> None:
        self._rank = rank
        self._version: str | None = None
        self._published: dict[str, Bytes] = {}

    @property
    def is_source(self) -> bool:
        """All ranks publish one version."""
        return self._rank.is_source

    def send(self, engines: Sequence[EngineCalls], fields: Fields) -> Sent:
        """Publish this rank's files; rank 0 then has the engines fetch and apply all."""
        rank = self._rank
        base = rank.agree(self._find_base(engines, fields), fields)
        about = {**fields, "baseline": base is None}
        buckets = rank.buckets(about)
        sizes, file_sizes = [], []
        for number in range(rank.number, len(buckets), rank.settings.trainers):
            size, file_size = self._publish(number, buckets, base, about)
            sizes.append(size)
            file_sizes.append(file_size)
        rank.barrier(about)
        self._version = fields["weight_version"]
        if rank.is_source:
            with timeline.phase("engine_wait", **about):
                ask_all(engines, "pull_delta", about)
        with rank.paused(engines, about):
            if rank.is_source:
                with timeline.phase("engine_wait", **about):
                    ask_all(engines, "load_delta", about)
        return Sent(len(sizes), sum(sizes), sum(file_sizes), baseline=base is None)

    def _find_base(self, engines: Sequence[EngineCalls], fields: Fields) -> str | None:
        """On rank 0: the version that every engine has, if it is the one that was published last."""
        if self._version is None or not self._rank.is_source:
            return None
        with timeline.phase("connect_engines", **fields):
            versions = set(ask_all(engines, "weight_version"))
        return self._version if versions == {self._version} else None

    def _publish(
        self, number: int, buckets: Sequence[Sequence[Part]], base: str | None, about: Fields
    ) -> tuple[int, int]:
        """Publish one bucket; its bytes and those of the file."""
        rank = self._rank
        version: str = about["weight_version"]
        with timeline.phase("weight_convert", bucket=number, **about):
            tensors = dict(convert_parts(rank.parameters, buckets[number]))
            size = count_tensor_bytes(tensors.values())
        with timeline.phase("delta_encode", bucket=number, bytes=size, tensors=len(tensors), **about):
            metadata = {"weight_version": version} | ({} if base is None else {_BASE: base})
            payload = {
                name: self._encode(name, tensor, baseline=base is None) for name, tensor in tensors.items()
            }
            data = pack_file(payload, metadata)
        sizes = {"bytes": len(data), "tensors": len(tensors), "decoded_bytes": size}
        with timeline.phase("delta_publish", bucket=number, **sizes, **about):
            write_file(version_folder(rank.settings, version) / file_name(number, len(buckets)), data)
        return size, len(data)

    def _encode(self, name: str, tensor: Tensor, *, baseline: bool) -> Tensor:
        import torch

        new = raw_bytes(tensor)
        old = np.zeros_like(new) if baseline else self._published[name]
        self._published[name] = new.copy()
        return torch.frombuffer(
            bytearray(encode_difference(old, new, tensor.element_size())), dtype=torch.uint8
        )


def read_delta(folder: Path, parameters: Parameters, weight_version: str | None) -> dict[str, Tensor]:
    """In an engine that has `weight_version`: all of its tensors, from the files of the next.

    Raises `WeightsError` for a difference to another version, and as `read_shards`.
    """
    import torch

    wanted = engine_tensors(parameters)
    found: dict[str, Tensor] = {}
    for path in list_files(folder):
        payload, metadata = read_file(path)
        base = metadata.get(_BASE)
        if base not in (None, weight_version):
            raise WeightsError(f"{path}: a difference to weight version {base}, here is {weight_version}")
        for name, encoded in payload.items():
            if name not in wanted:
                raise WeightsError(f"{path}: {name} is no tensor of the model")
            old = raw_bytes(wanted[name])
            try:
                new = decode_difference(
                    np.zeros_like(old) if base is None else old,
                    encoded.numpy(),
                    wanted[name].element_size(),
                )
            except ValueError as error:
                raise WeightsError(f"{path}: {name}: {error}") from error
            found[name] = torch.from_numpy(new).view(wanted[name].dtype).view(wanted[name].shape)
    check_whole(folder, found, wanted)
    return found
