"""Where a record stands: its parent phase, its rollout, its thread and asyncio task.

Under a running event loop the innermost phase lives in a ContextVar, so that tasks
interleaving on one thread each see their own. Elsewhere it lives in the thread's
`ThreadState`: there both say the same, and a ContextVar set, needed twice per phase, costs
a tenth of a whole phase. A thread or task without a phase of its own takes the one its
context was copied with, or the one its thread is in.

Innermost phases form a chain through `Node.before`. A generator can end a phase that is
not the innermost; it is then taken out of the middle of its chain.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final, Protocol

from slime_profiler_plugin import schema


class Unset(enum.Enum):
    """In the place of a rollout: the process's rollout counts."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET

#: Ids stay unique when a process stops and starts recording again: a phase that was open
#: across the gap must not become the parent of strangers.
next_id: Final = itertools.count(1).__next__

_next_task: Final = itertools.count(1).__next__
_task_numbers: Final[weakref.WeakKeyDictionary[asyncio.Task[Any], int]] = weakref.WeakKeyDictionary()


#: Phases inside each other that a walk through them sees.
MOST_NESTED: Final = 10_000


class Node(Protocol):
    """What can be a parent."""

    id: int
    #: 0 once it has ended.
    start_ns: int
    #: The node that was innermost when this one began, in the same chain.
    before: Node | None


#: The innermost phase begun under a running event loop, in this context.
PARENT: Final[ContextVar[Node | None]] = ContextVar("slime_profiler_parent", default=None)
#: Rollout of the innermost ``timeline.rollout(r)`` of this thread or task, else `UNSET`.
ROLLOUT: Final[ContextVar[schema.Rollout | Unset]] = ContextVar("slime_profiler_rollout", default=UNSET)


class ThreadState:
    """One thread: its native id, and its innermost phase begun outside event loops."""

    __slots__ = ("__weakref__", "current", "entries", "tid")

    def __init__(self) -> None:
        self.tid = threading.get_native_id()
        self.current: Node | None = None
        #: Entries of phases that threads share, with the phase that each stands for.
        self.entries: list[tuple[Any, Any]] = []


def task_number() -> int | None:
    """Number of the running asyncio task, unique in the process; ``None`` in a bare callback.

    Only to be called while an event loop runs in this thread.
    """
    task = asyncio.current_task()
    if task is None:
        return None
    number = _task_numbers.get(task)
    if number is None:
        number = _task_numbers[task] = _next_task()
    return number


def chain(innermost: Node | None) -> Iterator[Node]:
    """`innermost` and all it stands inside, `MOST_NESTED` at most: whatever befalls it, a walk ends."""
    for _ in range(MOST_NESTED):
        if innermost is None:
            return
        yield innermost
        innermost = innermost.before


def take_out(node: Node, innermost: Node | None) -> None:
    """Remove `node` from the middle of the chain that begins at `innermost`."""
    for inner in chain(innermost):
        if inner.before is node:
            inner.before = node.before
            return


class RolloutContext:
    """``with timeline.rollout(r)``: records inside, in this thread or task, belong to `r`."""

    __slots__ = ("_before", "_rollout")

    def __init__(self, rollout: schema.Rollout) -> None:
        self._rollout = rollout
        self._before: list[schema.Rollout | Unset] = []

    def __enter__(self) -> None:
        self._before.append(ROLLOUT.get())
        ROLLOUT.set(self._rollout)

    def __exit__(self, *exc: object) -> None:
        # No token: one is refused in another context, where a generator may be closed.
        ROLLOUT.set(self._before.pop() if self._before else UNSET)
