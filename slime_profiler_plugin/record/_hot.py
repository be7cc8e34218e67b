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
from ._guard import FAILURE, Guard, describe
from ._outputs import Opened, Outputs
from ._spans import OpenSpan

if TYPE_CHECKING:
    from ._queue import RecordQueue

get_parent: Final = PARENT.get
set_parent: Final = PARENT.set
get_rollout: Final = ROLLOUT.get


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
            self.queue.put((name, None, parent, rollout, now, now, state.tid, task, fields or None, None))
        except FAILURE as error:
            self.guard.failed("mark", error)

    def place(self) -> tuple[ThreadState, int | None, int | None]:
        """Thread, task and parent id of what is recorded here and now."""
        state = self.thread_state()
        if running_loop() is None:
            parent = state.current or get_parent()
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
        set_parent(phase)
        self.open[phase.id] = phase

    def leave(self, phase: Phase) -> None:
        """Close a phase that was begun under an event loop, or is not its thread's innermost."""
        if self.open.pop(phase.id, None) is None:
            take_out(phase, phase.state.current)
        elif get_parent() is phase:
            set_parent(phase.before)
        else:
            take_out(phase, get_parent())

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
            for node in chain(state.current):
                if isinstance(node, Phase) and node.start_ns:
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
    #: 0 while it is not entered, and until the clock is read.
    start_ns: int

    def __enter__(self) -> None:
        if self.start_ns:
            self.opened = EnteredAgain(self.opened)
            return
        hot = self.hot
        try:
            self.id = next_id()
            try:
                self.state = state = hot.thread.state
            except AttributeError:
                self.state = state = hot.new_thread()
            self.rollout = hot.current_rollout() if hot.has_scopes else hot.rollout
            if running_loop() is None:
                self.task = None
                self.before = before = state.current
                if before is None:
                    before = get_parent()
                self.parent = None if before is None else before.id
                state.current = self
            else:
                hot.enter_loop(self)
        except FAILURE as error:
            hot.guard.failed("phase", error)
        try:
            self.opened = hot.outputs.open(self) if hot.outputs.busy() else None
        except FAILURE as error:
            self.opened = None
            hot.outputs.failed("record_function", error)  # asking for it; opening has guards of its own
        self.start_ns = monotonic_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = monotonic_ns()
        hot = self.hot
        try:
            if self.opened is not None and self.opened.close(self):
                return
            state = self.state
            record = (
                self.name,
                self.id,
                self.parent,
                self.rollout,
                self.start_ns,
                end,
                state.tid,
                self.task,
                self.fields or None,
                None if error is None else describe(error),
            )
            self.start_ns = 0
            # First queued, then no longer open: a flush in between finds it in both places,
            # never in neither.
            if len(hot.items) < hot.queue.limit:
                hot.items.append(record)
            else:
                hot.queue.crowded(record)
            if state.current is self:
                state.current = self.before
            else:
                hot.leave(self)
        except FAILURE as failure:
            hot.guard.failed("phase", failure)


class EnteredAgain:
    """In the place of what a phase has opened, while it is entered again inside itself.

    One object stands for one phase at a time: the inner ``with`` records nothing.
    """

    __slots__ = ("_before",)

    def __init__(self, before: Opened | EnteredAgain | None) -> None:
        self._before = before

    def close(self, phase: Phase) -> bool:
        """True: this was the end of the inner ``with``, not of the phase."""
        phase.opened = self._before
        return True
