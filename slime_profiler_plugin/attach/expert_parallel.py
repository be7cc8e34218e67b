"""Hooks around what expert parallelism does: dispatch, combine, gather, convert.

Megatron's token dispatchers are attached by themselves. Here you attach your own, with any
process group: nothing is assumed of the world's size, of how ranks are laid out, or that a
group stays the same. The group is asked at each call, and asking communicates nothing.

>>> from slime_profiler_plugin.attach import expert_parallel
>>> def exchange(tokens, group=None):
...     return tokens
>>> exchange = expert_parallel.hook("dispatch", exchange, group=lambda tokens, group=None: group)
>>> exchange([1, 2])
[1, 2]
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Generator
from typing import Any, Final, Literal, ParamSpec, TypeAlias, TypeVar, cast

from slime_profiler_plugin._timeline import PhaseContext, timeline

from ._failures import FAILURE, failed, is_theirs
from ._open_phases import PHASES

__all__ = ["STAGES", "Attached", "Stage", "attach", "hook", "phase"]

P = ParamSpec("P")
R = TypeVar("R")

Stage: TypeAlias = Literal["dispatch", "combine", "gather", "convert"]

#: What can be hooked, and the phase it is.
STAGES: Final[dict[str, str]] = {
    "dispatch": "ep_dispatch",
    "combine": "ep_combine",
    "gather": "ep_gather",
    "convert": "weight_convert",
}


def phase(stage: Stage, *, group: Any = None, **fields: Any) -> PhaseContext:
    """Context manager: what is inside is that stage of the ranks of `group`.

    `group`: a ``torch.distributed.ProcessGroup``, anything with ``size()`` and ``rank()``, or
    ``None`` where it is not known. `fields` are those of ``timeline.phase``. Raises
    `ValueError` for an unknown stage.
    """
    name = _phase_of(stage)
    if timeline.on:
        fields = {**_group_fields(group), **fields}
    return timeline.phase(name, **fields)


def hook(stage: Stage, function: Callable[P, R], *, group: Any = None, **fields: Any) -> Callable[P, R]:
    """`function`, each of whose calls is that stage; everything else about it stays.

    `group` as in `phase`, or a function that is called with the arguments of the call and
    returns one: use it where groups are made anew. Of the tensors among the arguments and in
    lists and tuples there, ``bytes`` and ``tensors`` are noted, unless `fields` says them. Of a
    generator, each step is a phase: what its consumer does in between is not.

    Raises `ValueError` for an unknown stage, `TypeError` for a coroutine function: a phase
    that is held across an ``await`` would count what others did meanwhile.
    """
    name = _phase_of(stage)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function!r} is a coroutine function; use expert_parallel.phase inside it")

    def known(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        return {**call_fields(group, args, kwargs), **fields}

    def hooked(*args: Any, **kwargs: Any) -> Any:
        if not timeline.on:
            return function(*args, **kwargs)
        return PHASES.around(name, lambda: function(*args, **kwargs), known(args, kwargs))

    def hooked_generator(*args: Any, **kwargs: Any) -> Any:
        steps = cast("Generator[Any, Any, Any]", function(*args, **kwargs))
        return (yield from _Steps(name, known(args, kwargs), steps) if timeline.on else steps)

    new = hooked_generator if inspect.isgeneratorfunction(function) else hooked
    return cast("Callable[P, R]", functools.wraps(function)(new))


class Attached:
    """Hooks that `attach` has placed."""

    def __init__(self, owner: Any, before: dict[str, tuple[bool, Any]], placed: dict[str, Any]) -> None:
        self._owner = owner
        self._before = before
        self._placed = placed

    def remove(self) -> None:
        """Put back what was there, where nobody else has put something in its place since."""
        for name, (own, value) in self._before.items():
            if vars(self._owner).get(name) is not self._placed[name]:
                continue
            if own:
                setattr(self._owner, name, value)
            else:
                delattr(self._owner, name)
        self._before = {}


def attach(owner: Any, *, group: Any = None, **stages: str) -> Attached:
    """Hook functions of a class, an object or a module of yours, by stage.

    ``attach(Exchange, dispatch="send", combine="fetch", group=lambda self, *a, **k: self.group)``

    `group` as in `hook`. Raises `AttributeError` where `owner` lacks a name, `ValueError` for an
    unknown stage; then nothing was placed.
    """
    placed: dict[str, Any] = {}
    before: dict[str, tuple[bool, Any]] = {}
    for stage, name in stages.items():
        found = inspect.getattr_static(owner, name) if isinstance(owner, type) else getattr(owner, name)
        kind = type(found) if isinstance(found, (staticmethod, classmethod)) else None
        function = hook(cast("Stage", stage), found.__func__ if kind else found, group=group)
        placed[name] = kind(function) if kind else function
        before[name] = (name in vars(owner), vars(owner).get(name))
    for name, function in placed.items():
        setattr(owner, name, function)
    return Attached(owner, before, placed)


class _Steps(Generator[Any, Any, Any]):
    """A generator each of whose steps is a phase."""

    def __init__(self, name: str, fields: dict[str, Any], steps: Generator[Any, Any, Any]) -> None:
        self._name = name
        self._fields = fields
        self._steps = steps

    def send(self, value: Any) -> Any:
        return PHASES.around(self._name, lambda: self._steps.send(value), self._fields)

    def throw(self, *error: Any) -> Any:
        return self._steps.throw(*error)

    def close(self) -> None:
        self._steps.close()


def _phase_of(stage: str) -> str:
    try:
        return STAGES[stage]
    except KeyError:
        raise ValueError(f"{stage!r} is no stage of expert parallelism: {', '.join(STAGES)}") from None


def call_fields(group: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What the records of one call say of its group and its tensors. Never raises a failure of ours."""
    try:
        found = group(*args, **kwargs) if callable(group) else group
        return {**_group_fields(found), **_size_fields((*args, *kwargs.values()))}
    except FAILURE as error:
        if is_theirs(error):
            raise
        failed("expert_parallel", error)
        return {}


def _size_fields(arguments: tuple[Any, ...]) -> dict[str, int]:
    sizes = []
    for argument in arguments:
        for value in argument if type(argument) in (list, tuple) else (argument,):
            size = getattr(value, "nbytes", None)  # of a tensor: its elements, whatever it is a view of
            if type(size) is int:
                sizes.append(size)
    return {"bytes": sum(sizes), "tensors": len(sizes)} if sizes else {}


def _group_fields(group: Any) -> dict[str, Any]:
    """Size of the group, this process's rank in it, and its ranks in the world.

    A group that cannot say, such as one destroyed meanwhile, leaves out what it cannot.
    """
    if group is None:
        return {}
    try:
        fields = {"ep_size": int(group.size()), "ep_rank": int(group.rank())}
        ranks = _world_ranks(group)
        return fields if ranks is None else {**fields, "ep_ranks": ranks}
    except FAILURE as error:
        if is_theirs(error):
            raise
        failed("expert_parallel", error)
        return {}


#: Of groups that are alive: their ranks never change.
_ranks: Final[weakref.WeakKeyDictionary[Any, str]] = weakref.WeakKeyDictionary()


def _world_ranks(group: Any) -> str | None:
    known = _ranks.get(group)
    if known is not None:
        return known
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not isinstance(group, getattr(distributed, "ProcessGroup", ())):
        return None
    known = _ranks[group] = ranges(distributed.get_process_group_ranks(group))
    return known


def ranges(ranks: list[int]) -> str:
    """Numbers in few characters, in the order given; a step other than 1 stands behind a colon.

    >>> [ranges(r) for r in ([0, 1, 2, 3], [1, 3, 5, 7], [4], [0, 1, 2, 8, 5])]
    ['0-3', '1-7:2', '4', '0-2,8,5']
    """
    parts: list[str] = []
    begin = 0
    while begin < len(ranks):
        end = begin + 1
        step = ranks[end] - ranks[begin] if end < len(ranks) else 0
        while end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
        if step < 1 or end - begin < 3:
            parts.append(str(ranks[begin]))
            begin += 1
            continue
        parts.append(f"{ranks[begin]}-{ranks[end - 1]}" + (f":{step}" if step > 1 else ""))
        begin = end
    return ",".join(parts)
