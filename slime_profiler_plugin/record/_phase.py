"""A phase: what it costs the training thread.

On the way in: an id, the parent, the rollout, one clock read. On the way out: one clock
read, one append to a plain deque. The other outputs cost one C call while none is in use;
fields, JSON and files are the writer thread's.

The code trades some repetition for speed: nothing is wrapped, a difference of two times is
left to the writer, and each ``except`` catches what `_guard` says is ours.
"""

from __future__ import annotations

from asyncio import _get_running_loop as running_loop  # `get_running_loop` raises when there is none
from collections.abc import Callable, Iterator
from sys import getrefcount
from threading import get_ident
from time import monotonic_ns
from types import TracebackType
from typing import TYPE_CHECKING, Final

from slime_profiler_plugin import schema
from slime_profiler_plugin._timeline import PhaseContext, noop_phase

from ._context import PARENT, Node, ThreadState, chain, next_id
from ._guard import FAILURE, RAISED, describe, is_theirs
from ._outputs import Opened

if TYPE_CHECKING:
    from ._hot import HotPath

get_parent: Final = PARENT.get

#: `Phase.start_ns` while it is being entered.
ENTERING: Final = 1


class Phase:
    """One ``with timeline.phase(...)``: the context manager, and the parent of what is inside."""

    __slots__ = (
        "before",
        "fields",
        "hot",
        "id",
        "name",
        "opened",
        "parent",
        "rollout",
        "start_ns",
        "state",
        "task",
    )

    hot: HotPath
    name: str
    fields: dict[str, object]
    id: int
    before: Node | None
    parent: int | None
    rollout: schema.Rollout
    state: ThreadState
    task: int | None
    #: Other outputs to close, if any is in use.
    opened: Opened | EnteredAgain | None
    #: 0 while it is not entered, `ENTERING` until the clock is read.
    start_ns: int

    def __reduce__(self) -> tuple[Callable[[], PhaseContext], tuple[()]]:
        """Copied or sent, it records nothing."""
        return noop_phase, ()

    def __enter__(self) -> None:
        hot = self.hot
        if self.start_ns:
            hot.enter_again(self)
            return
        # Nothing can come between the look and this: of two threads one is the first.
        self.start_ns = 1  # ENTERING
        try:
            self.id = next_id()
            try:
                self.state = state = hot.thread.state
            except AttributeError:
                self.state = state = hot.new_thread()
            self.rollout = hot.current_rollout() if hot.has_scopes else hot.rollout
            if running_loop() is None:
                self.task = None
                before = state.current
                if before is not None and not before.start_ns:
                    before = hot.drop_ended(state)
                self.before = before
                if before is None:
                    before = get_parent()
                self.parent = None if before is None else before.id
                state.current = self
            else:
                hot.enter_loop(self)
        except RAISED as error:
            if is_theirs(error):
                hot.undo(self)
                raise
            hot.guard.failed("phase", error)
        try:
            self.opened = hot.outputs.open(self) if hot.outputs.busy() else None
            self.start_ns = monotonic_ns()
        except RAISED as error:
            if is_theirs(error):
                hot.undo(self)
                raise
            self.opened = None
            hot.outputs.failed("record_function", error)  # asking for it; opening has guards of its own
            self.start_ns = monotonic_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hot = self.hot
        try:
            end = monotonic_ns()
            start = self.start_ns
            if not start:
                return
            if self.opened is not None and self.opened.close(self):
                return
            state = self.state
            record = (
                self.name,
                self.id,
                self.parent,
                self.rollout,
                start,
                end,
                state.tid,
                self.task,
                self.fields or None,
                None if error is None else describe(error),
            )
            # Nothing can come between these two: it is queued when, and only when, it is 0.
            if len(hot.items) < hot.queue.limit:
                self.start_ns = 0
                hot.items.append(record)
            else:
                self.start_ns = 0
                hot.queue.crowded(record)
            if state.current is self:
                state.current = self.before
            else:
                hot.leave(self, error)
            self.before = None  # what has ended keeps nothing alive
        except RAISED as failure:
            if is_theirs(failure):
                hot.finish(self, error)
                raise
            hot.guard.failed("phase", failure)


def counted(state: ThreadState) -> Iterator[tuple[Node, int]]:
    """The thread's phases, the innermost first, each with the number of references to it."""
    for node in chain(state.current):
        yield node, getrefcount(node)


def _references_of_the_lost() -> int:
    """What `counted` says of a phase that only the chain knows: no ``with`` is left to end it.

    A signal handler that raises at the very first step of ``__exit__`` leaves one behind.
    """
    state = ThreadState()
    phase = Phase()
    phase.before = None
    state.current = phase
    del phase
    return next(counted(state))[1]


ONLY_IN_CHAIN: Final = _references_of_the_lost()


class EnteredAgain:
    """In the place of what a phase has opened, while it is entered again.

    One object stands for one phase at a time: the inner ``with`` records nothing.
    """

    __slots__ = ("_before", "inner")

    def __init__(self, before: Opened | None) -> None:
        self._before = before
        #: Inner ``with`` blocks that have not ended, by thread.
        self.inner: dict[int, int] = {}

    def close(self, phase: Phase) -> bool:
        """True: this was the end of an inner ``with``, not of the phase."""
        ident = get_ident()
        inner = self.inner.get(ident, 0)
        if inner:
            self.inner[ident] = inner - 1
            return True
        phase.opened = self._before
        return phase.opened is not None and phase.opened.close(phase)


class SharedPhase(Phase):
    """What a phase becomes when threads enter it at once: from then on each entry is one of its own."""

    __slots__ = ()

    def __enter__(self) -> None:
        hot = self.hot
        try:
            entry = hot.phase(self.name, **self.fields)
            hot.thread_state().entries.append((self, entry))
        except FAILURE as error:
            if is_theirs(error):
                raise
            hot.guard.failed("phase", error)
            return
        entry.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entries = self.hot.thread_state().entries
        for place in range(len(entries) - 1, -1, -1):
            if entries[place][0] is self:
                entries.pop(place)[1].__exit__(kind, error, trace)
                return
