"""The engines' names and layout of the weights, and buckets of them.

Trainers keep query, key and value as one matrix; on the way they are three tensors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ._model import Parameters

if TYPE_CHECKING:
    from torch import Tensor


class _Part(NamedTuple):
    """Rows [start, stop) of a trainer's parameter are the engine's tensor `name`."""

    name: str
    parameter: str
    start: int
    stop: int


def _parts(parameters: Parameters) -> Iterator[_Part]:
    for parameter, value in parameters.items():
        name = "model." + parameter.replace("blocks.", "layers.")
        rows = value.shape[0]
        if parameter.endswith(".qkv"):
            for number, letter in enumerate("qkv"):
                yield _Part(
                    f"{name[: -len('qkv')]}{letter}_proj.weight",
                    parameter,
                    number * rows // 3,
                    (number + 1) * rows // 3,
                )
        else:
            yield _Part(f"{name}.weight", parameter, 0, rows)


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of converted tensors: what a receiver must know before they come.

    `shapes` and `dtypes` (``float32``) are in the order of `names`, in which the tensors
    are broadcast. (`source`, `sync`, `bucket`) tells it from every other bucket of a run's
    attempt; `source` is ``None`` where the sender records nothing.
    """

    sync: int
    bucket: int
    source: str | None
    weight_version: str
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
            "bytes": self.bytes,
            "tensors": len(self.names),
        }


def split_buckets(parameters: Parameters, limit: int) -> list[list[_Part]]:
    """The engine tensors in order, cut into runs of at most `limit` bytes.

    A tensor larger than that is a run of its own.
    """
    buckets: list[list[_Part]] = []
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


def convert_parts(parameters: Parameters, parts: Sequence[_Part]) -> list[tuple[str, Tensor]]:
    """The engine's (name, tensor) pairs; the tensors share the parameters' memory."""
    return [(p.name, parameters[p.parameter].detach()[p.start : p.stop]) for p in parts]


def load_tensors(parameters: Parameters, tensors: dict[str, Tensor]) -> None:
    """Copy converted tensors into `parameters`. Raises `KeyError` for a name of no parameter."""
    parts = {part.name: part for part in _parts(parameters)}
    for name, tensor in tensors.items():
        part = parts[name]
        parameters[part.parameter].detach()[part.start : part.stop].copy_(tensor)


def checksum_tensors(parameters: Parameters) -> dict[str, str]:
    """BLAKE2b of the bytes of each engine tensor, by its name."""
    sums = {}
    for parts in split_buckets(parameters, 0):
        for name, tensor in convert_parts(parameters, parts):
            data = tensor.cpu().contiguous().numpy().tobytes()
            sums[name] = hashlib.blake2b(data, digest_size=16).hexdigest()
    return sums
