"""The decorator behind `timeline.traced`: each kind of function keeps its kind.

Frameworks ask: Ray streams what is a generator function, asyncio awaits what is a coroutine
function.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from ._timeline import Span, Timeline

P = ParamSpec("P")
R = TypeVar("R")


def trace(timeline: Timeline, name: str, fields: dict[str, Any], function: Callable[P, R]) -> Callable[P, R]:
    """`function`, each of whose calls is a phase. The switch is looked at in each call."""
    wrap: Callable[..., Callable[..., Any]] = _plain
    if inspect.iscoroutinefunction(function):
        wrap = _coroutine
    elif inspect.isasyncgenfunction(function):
        wrap = _async_generator
    elif inspect.isgeneratorfunction(function):
        wrap = _generator
    return cast("Callable[P, R]", functools.wraps(function)(wrap(timeline, name, fields, function)))


def _plain(timeline: Timeline, name: str, fields: dict[str, Any], function: Callable[..., Any]) -> Any:
    def traced(*args: Any, **kwargs: Any) -> Any:
        with timeline.phase(name, **fields):
            return function(*args, **kwargs)

    return traced


def _coroutine(timeline: Timeline, name: str, fields: dict[str, Any], function: Callable[..., Any]) -> Any:
    async def traced(*args: Any, **kwargs: Any) -> Any:
        with timeline.phase(name, **fields):
            return await function(*args, **kwargs)

    return traced


def _generator(timeline: Timeline, name: str, fields: dict[str, Any], function: Callable[..., Any]) -> Any:
    def traced(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        span = timeline.begin(name, **fields)
        with _Ending(span):
            steps = function(*args, **kwargs)
            step = steps.__next__
            while True:
                with span.inside():
                    try:
                        item = step()
                    except StopIteration as stop:
                        return stop.value
                try:
                    step = functools.partial(steps.send, (yield item))
                except GeneratorExit:
                    with span.inside():
                        steps.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - whatever is thrown in goes on to the body
                    step = functools.partial(steps.throw, error)

    return traced


def _async_generator(
    timeline: Timeline, name: str, fields: dict[str, Any], function: Callable[..., Any]
) -> Any:
    async def traced(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        span = timeline.begin(name, **fields)
        with _Ending(span):
            steps = function(*args, **kwargs)
            step = functools.partial(_first_step, steps)
            while True:
                with span.inside():
                    try:
                        item = await step()
                    except StopAsyncIteration:
                        return
                try:
                    step = functools.partial(steps.asend, (yield item))
                except GeneratorExit:
                    with span.inside():
                        await steps.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - whatever is thrown in goes on to the body
                    step = functools.partial(steps.athrow, error)

    return traced


def _first_step(steps: AsyncGenerator[Any, Any]) -> Any:
    """The first ``__anext__`` of `steps`, of which the event loop is not told.

    A loop that ends closes all generators it knows of, at the same time: the inner one would
    be closed by it and by the outer one.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=None, finalizer=None)
    try:
        return steps.__anext__()
    finally:
        sys.set_asyncgen_hooks(*hooks)


class _Ending:
    """Ends a span, noting an exception that passes; a generator that is closed early has none."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None or kind is GeneratorExit:
            self._span.end()
        else:
            self._span.end(error=kind.__name__)
