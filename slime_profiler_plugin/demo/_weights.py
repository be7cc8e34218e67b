"""The engines' names and layout of the weights, and buckets of them.

Trainers keep query, key and value as one matrix; on the way they are three tensors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ._model import Parameters

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


class Part(NamedTuple):
    """Rows [start, stop) of a trainer's parameter are the engine's tensor `name`."""

    name: str
    parameter: str
    start: int
    stop: int


def _parts(parameters: Parameters) -> Iterator[Part]:
    for parameter, value in parameters.items():
        name = "model." + parameter.replace("blocks.", "layers.")
        rows = value.shape[0]
        if parameter.endswith(".qkv"):
            for number, letter in enumerate("qkv"):
                yield Part(
                    f"{name[: -len('qkv')]}{letter}_proj.weight",
                    parameter,
                    number * rows // 3,
                    (number + 1) * rows // 3,
                )
        else:
            yield Part(f"{name}.weight", parameter, 0, rows)


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of converted tensors: what a receiver must know before they come.

    `shapes` and `dtypes` (``float32``) are in the order of `names`, in which the tensors
    travel. (`source`, `sync`, `bucket`) tells it from every other bucket of a run's
    attempt; `source` is ``None`` where the sender records nothing.
    """

    sync: int
    bucket: int
    source: str | None
    weight_version: str
    transport: str
    names: list[str]
    shapes: list[list[int]]
    dtypes: list[str]
    bytes: int

    def fields(self) -> dict[str, object]:
        """The fields of every phase that handles this bucket."""
        return {
            "sync": self.sync,
            "bucket": self.bucket,
            "source": self.source,
            "weight_version": self.weight_version,
            "transport": self.transport,
            "bytes": self.bytes,
            "tensors": len(self.names),
        }


def split_buckets(parameters: Parameters, limit: int) -> list[list[Part]]:
    """The engine tensors in order, cut into runs of at most `limit` bytes.

    A tensor larger than that is a run of its own.
    """
    buckets: list[list[Part]] = []
    filled = limit
    for part in _parts(parameters):
        value = parameters[part.parameter]
        size = value[part.start : part.stop].numel() * value.element_size()
        if filled + size > limit:
            buckets.append([])
            filled = 0
        buckets[-1].append(part)
        filled += size
    return buckets


def convert_parts(parameters: Parameters, parts: Sequence[Part]) -> list[tuple[str, Tensor]]:
    """The engine's (name, tensor) pairs; the tensors share the parameters' memory."""
    return [(p.name, parameters[p.parameter].detach()[p.start : p.stop]) for p in parts]


def describe_bucket(
    number: int, converted: Sequence[tuple[str, Tensor]], fields: Mapping[str, Any]
) -> Bucket:
    """Bucket `number`, of those tensors, in the sync whose phases have `fields`."""
    return Bucket(
        **fields,
        bucket=number,
        names=[name for name, _ in converted],
        shapes=[list(tensor.shape) for _, tensor in converted],
        dtypes=[str(tensor.dtype).removeprefix("torch.") for _, tensor in converted],
        bytes=count_tensor_bytes(tensor for _, tensor in converted),
    )


def count_tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the tensors' elements."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def engine_tensors(parameters: Parameters) -> dict[str, Tensor]:
    """All of the engine's tensors by name; they share the parameters' memory."""
    return dict(convert_parts(parameters, list(_parts(parameters))))


def load_tensors(parameters: Parameters, tensors: Mapping[str, Tensor]) -> None:
    """Copy converted tensors into `parameters`. Raises `KeyError` for a name of no parameter."""
    own = engine_tensors(parameters)
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def raw_bytes(tensor: Tensor) -> NDArray[np.uint8]:
    """The bytes of a tensor's elements, in order; its own memory where that is possible."""
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy()


def checksum_tensors(parameters: Parameters) -> dict[str, str]:
    """BLAKE2b of the bytes of each engine tensor, by its name."""
    return {
        name: hashlib.blake2b(raw_bytes(tensor).tobytes(), digest_size=16).hexdigest()
        for name, tensor in engine_tensors(parameters).items()
    }
