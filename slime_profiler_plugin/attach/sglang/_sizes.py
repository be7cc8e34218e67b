"""How many bytes and tensors an update has, from what is known without touching a device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any


def count_announced(dtypes: Sequence[Any], shapes: Iterable[Sequence[int]]) -> dict[str, int]:
    """Of tensors that are to come; `dtypes` are torch's, or their names.

    >>> count_announced(["bfloat16", "float32"], [(2, 3), ()])
    {'bytes': 16, 'tensors': 2}
    """
    import torch

    kinds = [kind if isinstance(kind, torch.dtype) else getattr(torch, kind) for kind in dtypes]
    size = sum(kind.itemsize * math.prod(shape) for kind, shape in zip(kinds, shapes, strict=True))
    return {"bytes": size, "tensors": len(kinds)}


def count_given(tensors: Any) -> dict[str, int]:
    """Of (name, tensor) pairs, or of a flattened bucket with its metadata.

    Bytes are left out where a tensor is a handle of each rank's, which does not tell them.
    """
    if isinstance(tensors, dict):
        return {"bytes": tensors["flattened_tensor"].nbytes, "tensors": len(tensors["metadata"])}
    sizes = [getattr(tensor, "nbytes", None) for _, tensor in tensors]
    told = {"tensors": len(sizes)}
    known = [size for size in sizes if size is not None]
    return {"bytes": sum(known), **told} if len(known) == len(sizes) else told


def count_model(model: Any) -> dict[str, int]:
    """Of this rank's part of a model."""
    sizes = [parameter.nbytes for parameter in model.parameters()]
    return {"bytes": sum(sizes), "tensors": len(sizes)}
