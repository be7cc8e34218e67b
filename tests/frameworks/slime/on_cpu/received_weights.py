"""What a stand-in engine holds: weights that it takes in every way that slime sends them."""

from __future__ import annotations

import datetime as dt
import fcntl
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import xxhash
import zstandard
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sglang.srt.utils import MultiprocessingSerializer
from sglang.srt.weight_sync.tensor_bucket import FlattenedTensorBucket
from torch.distributed import distributed_c10d as c10d

_TIMEOUT = dt.timedelta(seconds=120)
_FILE = "model.safetensors"


def digests(weights: dict[str, torch.Tensor]) -> dict[str, str]:
    """Of each tensor: its type, shape and bytes."""
    return {
        name: f"{tensor.dtype}{list(tensor.shape)} "
        + hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
        for name, tensor in sorted(weights.items())
    }


class ReceivedWeights:
    def __init__(self, model: Path) -> None:
        self._model = model
        self.weights = load_folder(model)
        self.version = "default"
        self._groups: dict[str, Any] = {}

    def join(self, address: str, port: int, rank: int, size: int, name: str) -> None:
        """A process group with the trainer, which is its rank 0."""
        store, rank, size = next(c10d.rendezvous(f"tcp://{address}:{port}", rank, size, timeout=_TIMEOUT))
        group, _ = c10d._new_process_group_helper(
            size,
            rank,
            [],
            c10d.Backend("gloo"),
            c10d.PrefixStore(name, store),
            group_name=name,
            timeout=_TIMEOUT,
        )
        c10d._world.pg_group_ranks[group] = {place: place for place in range(size)}
        self._groups[name] = group

    def leave(self, name: str) -> None:
        dist.destroy_process_group(self._groups.pop(name))

    def receive(
        self, names: list[str], dtypes: list[str], shapes: list[list[int]], group: str
    ) -> tuple[int, int]:
        """A bucket that the trainer broadcasts; its tensors and bytes."""
        tensors = [torch.empty(s, dtype=getattr(torch, d)) for d, s in zip(dtypes, shapes, strict=True)]
        handles = [dist.broadcast(t, 0, group=self._groups[group], async_op=True) for t in tensors]
        for handle in handles:
            handle.wait()
        return self._take(zip(names, tensors, strict=True))

    def unpack(self, parts: list[str]) -> tuple[int, int]:
        """A bucket in memory that the trainer shares, once for each GPU of the engine; they hold the same."""
        buckets = []
        for part in parts:
            flat = MultiprocessingSerializer.deserialize(part)
            if flat["metadata"]:
                bucket = FlattenedTensorBucket(
                    flattened_tensor=flat["flattened_tensor"], metadata=flat["metadata"]
                )
                buckets.append({name: tensor.clone() for name, tensor in bucket.reconstruct_tensors()})
        if any(digests(bucket) != digests(buckets[0]) for bucket in buckets):
            raise ValueError("the GPUs of an engine were given different weights")
        return self._take(buckets[0])

    def load(self, folder: Path) -> tuple[int, int]:
        return self._take(load_folder(folder).items())

    def _take(self, named: Any) -> tuple[int, int]:
        taken = dict(named)
        unknown = taken.keys() - self.weights.keys()
        if unknown:
            raise ValueError(f"the model has no {sorted(unknown)}")
        self.weights.update(taken)
        return len(taken), sum(tensor.nbytes for tensor in taken.values())

    def pull(self, local: Path, source: Path, target: int) -> None:
        """The published versions up to `target` onto the copy of the model in `local`.

        Engines of one host share the copy: whoever comes first does it for all.
        """
        local.mkdir(parents=True, exist_ok=True)
        marker = local / "version"
        with (local / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not marker.is_file():
                save_file(load_folder(self._model), local / _FILE)
                marker.write_text("0")
            for version in range(int(marker.read_text()) + 1, target + 1):
                folder = source / f"weight_v{version:06d}"
                index = json.loads((folder / "model.safetensors.index.json").read_text())["metadata"]
                if index.get("base_version") != f"{version - 1:06d}":
                    raise ValueError(f"{folder.name} is a delta to {index.get('base_version')}")
                save_file(_patched(load_folder(local), folder, index), local / _FILE)
                marker.write_text(str(version))


def _patched(
    weights: dict[str, torch.Tensor], folder: Path, index: dict[str, str]
) -> dict[str, torch.Tensor]:
    """`weights` with a published delta applied, each changed tensor checked against its published sum.

    A delta to the bytes of a tensor is zstd-compressed. ``xor``: as long as the tensor. ``overwrite``: a
    count, that many positions, the new bytes at them.
    """
    if (index["compression_format"], index["checksum_format"]) != ("zstd", "xxh3-128"):
        raise ValueError(f"unknown formats in {index}")
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="np") as file:
            sums = file.metadata()
            for name in file.keys():  # noqa: SIM118 - not a mapping
                old = weights[name].contiguous().view(torch.uint8).numpy()
                plain = zstandard.ZstdDecompressor().decompress(file.get_tensor(name).tobytes())
                change = np.frombuffer(plain, np.uint8)
                flat = old.reshape(-1).copy()
                if index["delta_encoding"] == "xor":
                    flat ^= change
                else:
                    count = int(change[:4].view("<u4")[0])
                    flat[change[4 : 4 + 4 * count].view("<u4")] = change[4 + 4 * count :]
                if xxhash.xxh3_128(flat).hexdigest() != sums[name]:
                    raise ValueError(f"{path.name}: {name} is not what was published")
                new = torch.from_numpy(flat).view(weights[name].dtype)
                weights[name] = new.reshape(weights[name].shape)
    return weights


def load_folder(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a Hugging Face folder."""
    found: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found.update(load_file(path))
    if not found:
        raise FileNotFoundError(f"no weights in {folder}")
    return found
