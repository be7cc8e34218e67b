"""What of other people's code is hooked, and whether it is still there as it was."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import types
from collections.abc import Iterable
from types import ModuleType
from typing import Any, Final, Literal, NamedTuple

Status = Literal["attached", "missing", "changed", "absent"]

#: What importing a framework may raise: anything, also the wish to leave, and none of it ends a check.
_IMPORT_FAILURES: Final = (Exception, SystemExit)
_METHOD_KINDS: Final = (staticmethod, classmethod)
_FUNCTION_KINDS: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)


class Target(NamedTuple):
    """A callable of a framework that is wrapped.

    `name` is qualified inside `module`. `parameters` must be among the callable's, in this order; others may
    stand between and behind them; ``None``: any. `phases` are lost without it. `optional`: some versions lack
    it, which is no fault.
    """

    framework: str
    module: str
    name: str
    parameters: tuple[str, ...] | None
    phases: tuple[str, ...]
    optional: bool = False


class TargetState(NamedTuple):
    """What became of a target: ``attached`` (or can be), ``missing``, ``changed`` (it takes other
    parameters), ``absent`` (the framework is not installed); and why.
    """

    target: Target
    status: Status
    reason: str = ""


def owner_of(target: Target, module: ModuleType) -> Any:
    """What the target is an attribute of. Raises `AttributeError`."""
    owner: Any = module
    for part in target.name.split(".")[:-1]:
        owner = getattr(owner, part)
    # A class that ``@ray.remote`` decorates is hidden behind what makes its actors.
    return getattr(getattr(owner, "__ray_metadata__", None), "modified_class", owner)


def check_target(target: Target, module: ModuleType) -> TargetState:
    """Look the target up in its module, which is imported.

    >>> import textwrap
    >>> check_target(Target("python", "textwrap", "fill", ("text", "width"), ()), textwrap).status
    'attached'
    >>> check_target(Target("python", "textwrap", "fill", ("words",), ()), textwrap)[1:]
    ('changed', 'takes (text, width, **kwargs), not words')
    """
    try:
        owner, attribute = owner_of(target, module), target.name.rpartition(".")[2]
        found = getattr(owner, attribute)
    except AttributeError as error:
        return TargetState(target, "missing", str(error))
    stored = inspect.getattr_static(owner, attribute, None)
    if not _is_function(stored, owner):
        return TargetState(target, "changed", f"is no function, but of type {type(stored).__name__}")
    if target.parameters is None:
        return TargetState(target, "attached")
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # a builtin that does not tell
        return TargetState(target, "attached")
    wanted = target.parameters
    if inspect.isclass(owner_of(target, module)) and inspect.ismethod(found):
        wanted = tuple(name for name in wanted if name != "cls")
    if not _stand_in_order(wanted, signature.parameters):
        names = ", ".join(map(_spell, signature.parameters.values()))
        return TargetState(target, "changed", f"takes ({names}), not {', '.join(wanted)}")
    return TargetState(target, "attached")


def inspect_target(target: Target) -> TargetState:
    """The same, importing the module if need be."""
    try:
        if importlib.util.find_spec(target.module.partition(".")[0]) is None:
            return TargetState(target, "absent", f"{target.framework} is not installed")
        module = importlib.import_module(target.module)
    except _IMPORT_FAILURES as error:
        first_line = str(error).partition("\n")[0]
        return TargetState(target, "missing", f"cannot be imported: {type(error).__name__}: {first_line}")
    return check_target(target, module)


def _is_function(stored: Any, owner: Any) -> bool:
    """Whether a plain function in its place is called as it was, and is asked for nothing else.

    In a class, any other callable gets ``self`` in a way of its own, or none: `functools.partialmethod`, an
    object with ``__call__``, most of others' wrappers. Elsewhere it may have attributes, or be a class.

    >>> _is_function(vars(dict)["fromkeys"], dict), _is_function(inspect.signature, inspect)
    (False, True)
    """
    if inspect.isclass(owner):
        return type(stored.__func__ if type(stored) in _METHOD_KINDS else stored) is types.FunctionType
    return type(stored) in _FUNCTION_KINDS


def _stand_in_order(wanted: Iterable[str], names: Iterable[str]) -> bool:
    rest = iter(names)
    return all(name in rest for name in wanted)


def _spell(parameter: inspect.Parameter) -> str:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    return f"**{parameter.name}" if parameter.kind is inspect.Parameter.VAR_KEYWORD else parameter.name
