"""Writes down every collective and point-to-point call of this process, in order."""

from __future__ import annotations

import re
from typing import Any

import torch
import torch.distributed as dist

#: The methods of a process group that communicate: their names differ from version to version.
_COMMUNICATES = re.compile(
    r"_?(all_?gather|all_?reduce|all_?to_?all|barrier|broadcast|gather|monitored|recv|reduce|scatter|send)"
)

#: (method, ranks of the group, shapes and types of the tensors).
SEEN: list[list[Any]] = []


def install() -> None:
    """From now on. At the lowest level that Python reaches, whatever called it."""
    for name in dir(dist.ProcessGroup):
        if _COMMUNICATES.match(name):
            setattr(dist.ProcessGroup, name, _noted(name, getattr(dist.ProcessGroup, name)))


def _noted(name: str, method: Any) -> Any:
    def noted(group: Any, *args: Any, **kwargs: Any) -> Any:
        SEEN.append([name, dist.get_process_group_ranks(group), list(_tensors(args))])
        return method(group, *args, **kwargs)

    # A group written in Python is asked for its own method of that name, unless that is who calls: by this
    # name pybind11 knows it. Else the two would call each other for ever.
    noted.__code__ = noted.__code__.replace(co_name=name)
    return noted


def _tensors(values: Any) -> Any:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield f"{value.dtype}{list(value.shape)}"
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
