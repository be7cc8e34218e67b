"""Wrappers around other people's functions, of which none changes what those do.

The wrapped function is called exactly once, with what it was given, and its result or exception is what the
caller gets, whatever becomes of our part. A part that fails is told once and not asked again.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Generator
from types import ModuleType
from typing import Any, NamedTuple

from ._after_import import after_import, forget_all
from ._failures import FAILURE, failed, is_theirs
from ._targets import Target, TargetState, check_target, owner_of


class Bound(NamedTuple):
    """What a function was called with; `args` begins with ``self`` or ``cls`` where it has one."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


#: Calls what it is given, once, and does something before and after. Around a generator it is called for each
#: value that is asked for; around a coroutine function it is one itself and awaits what the call gives.
Around = Callable[[Callable[[], Any], Bound], Any]


class _Placed(NamedTuple):
    owner: Any
    attribute: str
    wrapper: Any
    #: What stood in the owner's own dict, or `_INHERITED`.
    before: Any


_INHERITED = object()
_placed: list[_Placed] = []
_states: dict[Target, TargetState] = {}
_wanted: set[tuple[Target, Around]] = set()


def wrap(target: Target, around: Around) -> None:
    """Put `around` around the target once its module has been imported.

    A target that is missing or takes other parameters is left alone; `states` says so. What is wrapped
    keeps its signature. The same `around` is put there once, however often it is asked for.
    """
    if (target, around) in _wanted:
        return
    _wanted.add((target, around))

    def place(module: ModuleType) -> None:
        state = check_target(target, module)
        _states[target] = state
        if state.status == "attached":
            _place(target, around, module)

    after_import(target.module, place)


def states() -> list[TargetState]:
    """Of the targets whose modules were imported so far: what became of each."""
    return list(_states.values())


def unwrap_all() -> None:
    """Put everything back, and wait for nothing more. What others have wrapped over ours stays in place."""
    forget_all()
    while _placed:
        owner, attribute, wrapper, before = _placed.pop()
        if inspect.getattr_static(owner, attribute, None) is not wrapper:
            continue
        if before is _INHERITED:
            delattr(owner, attribute)
        else:
            setattr(owner, attribute, before)
    _states.clear()
    _wanted.clear()


def remember_state(state: TargetState) -> None:
    """`states` says so of a target that somebody else places."""
    _states[state.target] = state


def remember_placed(owner: Any, attribute: str, wrapper: Any, before: Any) -> None:
    """`unwrap_all` puts `before` back, where `wrapper` still is what stands there."""
    _placed.append(_Placed(owner, attribute, wrapper, before))


def wrapped(function: Callable[..., Any], around: Around, name: str) -> Any:
    """A callable that does what `function` does, with `around` around it, for whoever places it himself."""
    return _wrapper(function, around, name)


def _place(target: Target, around: Around, module: ModuleType) -> None:
    owner, attribute = owner_of(target, module), target.name.rpartition(".")[2]
    found = inspect.getattr_static(owner, attribute)
    kind = type(found) if isinstance(found, (staticmethod, classmethod)) else None
    wrapper = _wrapper(found.__func__ if kind else found, around, f"{target.module}.{target.name}")
    if kind:
        wrapper = kind(wrapper)
    before = found if attribute in vars(owner) else _INHERITED
    setattr(owner, attribute, wrapper)
    _placed.append(_Placed(owner, attribute, wrapper, before))


class _Part:
    """Our side of a wrapper: `around`, until it fails."""

    def __init__(self, around: Around, name: str) -> None:
        self.around = around
        self.is_on = True
        self._name = name

    def fail(self, error: BaseException) -> None:
        self.is_on = False
        failed(f"around {self._name}", error)


def _like(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """`functools.wraps`, and the signature also for who does not look behind a wrapper, such as
    `inspect.getfullargspec`.
    """

    def dress(wrapper: Any) -> Any:
        functools.update_wrapper(wrapper, function)
        with contextlib.suppress(TypeError, ValueError):  # a builtin that does not tell
            wrapper.__signature__ = inspect.signature(function)
        return wrapper

    return dress


def _wrapper(function: Callable[..., Any], around: Around, name: str) -> Any:
    part = _Part(around, name)
    if inspect.isasyncgenfunction(function):
        raise TypeError(f"{name} is an asynchronous generator")
    if inspect.iscoroutinefunction(function):

        @_like(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return await _await(part, function, Bound(args, kwargs))

        return awaited
    if inspect.isgeneratorfunction(function):

        @_like(function)
        def generating(*args: Any, **kwargs: Any) -> Any:
            return (yield from _generate(part, function(*args, **kwargs), Bound(args, kwargs)))

        return generating

    @_like(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if not part.is_on:
            return function(*args, **kwargs)
        return _call(part, lambda: function(*args, **kwargs), Bound(args, kwargs))

    return called


class _Once:
    """A call that is made at most once; its result or exception is kept."""

    __slots__ = ("_function", "error", "is_made", "result")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.is_made = False
        self.result: Any = None
        self.error: BaseException | None = None

    def __call__(self) -> Any:
        if not self.is_made:
            self.is_made = True
            try:
                self.result = self._function()
            except BaseException as error:
                self.error = error
                raise
        if self.error is not None:
            raise self.error
        return self.result


def _call(part: _Part, function: Callable[[], Any], bound: Bound) -> Any:
    """The function's result or exception, with `around` around it."""
    once = _Once(function)
    try:
        try:
            part.around(once, bound)
        except FAILURE as error:
            if error is once.error or is_theirs(error):
                raise
            part.fail(error)
        if not once.is_made and part.is_on:
            part.fail(RuntimeError("it has not called what it is around"))
        return once()
    finally:
        once.error = None  # it refers to this frame


def _generate(part: _Part, values: Generator[Any, Any, Any], bound: Bound) -> Generator[Any, Any, Any]:
    """What a generator yields; nothing of ours is open while it waits for the next request."""
    step: Callable[[], Any] = functools.partial(next, values)
    while True:
        try:
            value = _call(part, step, bound) if part.is_on else step()
        except StopIteration as end:
            return end.value
        try:
            sent = yield value
        except GeneratorExit:
            values.close()
            raise
        except BaseException as error:  # noqa: BLE001 - thrown in from outside, and passed on
            step = functools.partial(values.throw, error)
        else:
            step = functools.partial(next, values) if sent is None else functools.partial(values.send, sent)


async def _await(part: _Part, function: Callable[..., Awaitable[Any]], bound: Bound) -> Any:
    if not part.is_on:
        return await function(*bound.args, **bound.kwargs)
    once = _OnceAwaited(function, bound)
    try:
        try:
            await part.around(once, bound)
        except FAILURE as error:
            if error is once.error or is_theirs(error):
                raise
            part.fail(error)
        if not once.is_made and part.is_on:
            part.fail(RuntimeError("it has not called what it is around"))
        return await once()
    finally:
        once.error = None  # it refers to this frame


class _OnceAwaited:
    """The same for a coroutine function."""

    def __init__(self, function: Callable[..., Awaitable[Any]], bound: Bound) -> None:
        self._function = function
        self._bound = bound
        self.is_made = False
        self.result: Any = None
        self.error: BaseException | None = None

    async def __call__(self) -> Any:
        if not self.is_made:
            self.is_made = True
            try:
                self.result = await self._function(*self._bound.args, **self._bound.kwargs)
            except BaseException as error:
                self.error = error
                raise
        if self.error is not None:
            raise self.error
        return self.result
