"""The hot path: what one phase costs the training thread.

On the way in: an id, the parent, the rollout, one clock read. On the way out: one clock
read, one append to a plain deque. The other outputs cost one C call while none is in use;
fields, JSON and files are the writer thread's.

The code trades some repetition for speed: nothing is wrapped, a difference of two times is
left to the writer, and each ``except`` catches what `_guard` says is ours.
"""

from __future__ import annotations

import threading
import weakref
from asyncio import _get_running_loop as running_loop  # `get_running_loop` raises when there is none
from collections.abc import Callable, Iterator
from sys import getrefcount
from threading import get_ident
from time import monotonic_ns
from types import TracebackType
from typing import TYPE_CHECKING, Final

from slime_profiler_plugin import schema

from ._context import (
    PARENT,
    ROLLOUT,
    UNSET,
    Node,
    ThreadState,
    chain,
    next_id,
    take_out,
    task_number,
)
from ._fields import PLAIN, plain
from ._guard import FAILURE, RAISED, Guard, describe, is_theirs
from ._outputs import Opened, Outputs
from ._spans import OpenSpan

if TYPE_CHECKING:
    from ._queue import RecordQueue

get_parent: Final = PARENT.get
set_parent: Final = PARENT.set
get_rollout: Final = ROLLOUT.get


#: `Phase.start_ns` while it is being entered.
ENTERING: Final = 1


class HotPath:
    """Makes phases, spans and marks; holds what each of them reads."""

    __slots__ = (
        "_announce",
        "guard",
        "has_scopes",
        "items",
        "open",
        "outputs",
        "queue",
        "rollout",
        "thread",
        "threads",
    )

    def __init__(
        self, queue: RecordQueue, guard: Guard, outputs: Outputs, announce: Callable[[ThreadState], None]
    ) -> None:
        """`announce` is called in each thread at its first record."""
        self.queue = queue
        self.items = queue.items
        self.guard = guard
        self.outputs = outputs
        #: The process's rollout.
        self.rollout: schema.Rollout = None
        #: Whether ``timeline.rollout`` was ever used: a thread or task may have a rollout of its own.
        self.has_scopes = False
        #: Open spans, and open phases begun under an event loop, by id.
        self.open: dict[int, Phase | OpenSpan] = {}
        self.threads: list[weakref.ref[ThreadState]] = []
        #: `state`, where the thread has recorded before. Plain: a subclass of `local` with a
        #: default costs three times as much to read.
        self.thread = threading.local()
        self._announce = announce

    def phase(self, name: str, /, **fields: object) -> Phase:
        """`Timeline.phase`."""
        # Plain stores, no __init__: half the price of a constructor call.
        phase = Phase()
        phase.hot = self
        phase.name = name
        if fields:
            for value in fields.values():
                if type(value) not in PLAIN:
                    fields = plain(fields)
                    break
        phase.fields = fields
        phase.start_ns = 0
        return phase

    def begin(self, name: str, /, **fields: object) -> OpenSpan:
        """`Timeline.begin`."""
        return OpenSpan(self, name, fields)

    def mark(self, name: str, /, **fields: object) -> None:
        """`Timeline.mark`."""
        try:
            now = monotonic_ns()
            state, task, parent = self.place()
            rollout = self.current_rollout()
            kept = plain(fields) if fields else None
            self.queue.put((name, None, parent, rollout, now, now, state.tid, task, kept, None))
        except FAILURE as error:
            if is_theirs(error):
                raise
            self.guard.failed("mark", error)

    def place(self) -> tuple[ThreadState, int | None, int | None]:
        """Thread, task and parent id of what is recorded here and now."""
        state = self.thread_state()
        if running_loop() is None:
            parent = state.current
            if parent is not None and not parent.start_ns:
                parent = self.drop_ended(state)
            parent = parent or get_parent()
            return state, None, parent.id if parent else None
        parent = get_parent() or state.current
        return state, task_number(), parent.id if parent else None

    def current_rollout(self) -> schema.Rollout:
        """The rollout of this thread or task, else the process's."""
        rollout = get_rollout()
        return self.rollout if rollout is UNSET else rollout

    def enter_loop(self, phase: Phase) -> None:
        """The part of `Phase.__enter__` that differs under a running event loop."""
        phase.task = task_number()
        phase.before = before = get_parent()
        parent = phase.state.current if before is None else before
        phase.parent = None if parent is None else parent.id
        self.open[phase.id] = phase
        set_parent(phase)

    def leave(self, phase: Phase, error: BaseException | None = None) -> None:
        """Close a phase that was begun under an event loop, or is not its thread's innermost.

        `error` passes through it, and may have interrupted inner ones before their
        ``__exit__`` had done anything.
        """
        if error is not None:
            self._finish_interrupted(phase, error)
            if phase.state.current is phase:
                phase.state.current = phase.before
                return
        if phase.id not in self.open:
            take_out(phase, phase.state.current)
            return
        if get_parent() is phase:
            set_parent(phase.before)
        else:
            take_out(phase, get_parent())
        self.open.pop(phase.id, None)

    def enter_again(self, phase: Phase) -> None:
        """Enter a phase that is entered already: inside itself, or in another thread or task."""
        again = phase.opened
        if not isinstance(again, EnteredAgain):
            again = phase.opened = EnteredAgain(again)
        ident = get_ident()
        again.inner[ident] = again.inner.get(ident, 0) + 1
        if phase.start_ns == ENTERING or phase.state is not self.thread_state():
            phase.__class__ = SharedPhase
            self.guard.lost("phase", "entered in several threads at once", phase.name)

    def undo(self, phase: Phase) -> None:
        """The program interrupted `phase.__enter__`, so that there will be no ``__exit__``."""
        phase.start_ns = 0
        opened = getattr(phase, "opened", None)
        if opened is not None:
            opened.close(phase)
        self._take_back(phase)

    def finish(self, phase: Phase, error: BaseException | None) -> None:
        """The program interrupted `phase.__exit__`: do what it has left undone."""
        if phase.opened is not None and phase.opened.close(phase):
            return
        if phase.start_ns:
            record = (
                phase.name,
                phase.id,
                phase.parent,
                phase.rollout,
                phase.start_ns,
                monotonic_ns(),
                phase.state.tid,
                phase.task,
                phase.fields or None,
                None if error is None else describe(error),
            )
            phase.start_ns = 0
            self.queue.put(record)
        self._take_back(phase)

    def _finish_interrupted(self, outer: Phase, error: BaseException) -> None:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code is Phase.__exit__.__code__:
                inner = trace.tb_frame.f_locals.get("self")
                if inner is not outer and isinstance(inner, Phase) and inner.start_ns:
                    self.finish(inner, error)
            trace = trace.tb_next

    def _take_back(self, phase: Phase) -> None:
        state = getattr(phase, "state", None)
        if state is None or getattr(phase, "before", phase) is phase:
            return  # it had not come so far
        if state.current is phase:
            state.current = phase.before
        else:
            self.leave(phase)
        phase.before = None

    def drop_ended(self, state: ThreadState) -> Node | None:
        """The thread's innermost phase, once those are dropped that were interrupted as they ended."""
        state.current = next((node for node in chain(state.current) if node.start_ns), None)
        return state.current

    def open_phases(self) -> Iterator[Phase | OpenSpan]:
        """What has begun and not ended. For the writer thread.

        Copying a list, or the values of a dict, is one step under the interpreter lock.
        """
        yield from tuple(self.open.values())
        for reference in tuple(self.threads):
            state = reference()
            if state is None:
                self.threads.remove(reference)
                continue
            for node, references in counted(state):
                if not isinstance(node, Phase) or node.start_ns <= ENTERING:
                    continue
                if references == ONLY_IN_CHAIN:
                    node.start_ns = 0  # the thread drops it at its next phase
                    self.guard.lost("phase", "interrupted before its end", node.name)
                else:
                    yield node

    def thread_state(self) -> ThreadState:
        """The calling thread's."""
        try:
            return self.thread.state  # type: ignore[no-any-return]
        except AttributeError:
            return self.new_thread()

    def new_thread(self) -> ThreadState:
        """The calling thread's first record."""
        self.thread.state = state = ThreadState()
        self.threads.append(weakref.ref(state))
        self._announce(state)
        return state


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
