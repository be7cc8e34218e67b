"""The hot path: makes phases, spans and marks, and holds what each of them reads."""

from __future__ import annotations

import functools
import threading
import weakref
from asyncio import _get_running_loop as running_loop  # `get_running_loop` raises when there is none
from collections.abc import Callable, Iterator
from threading import get_ident
from time import monotonic_ns
from typing import Final

from slime_profiler_plugin import schema
from slime_profiler_plugin._timeline import timeline

from ._context import (
    PARENT,
    ROLLOUT,
    UNSET,
    Node,
    ThreadState,
    chain,
    take_out,
    task_number,
)
from ._drops import Drops
from ._fields import PLAIN, plain
from ._guard import FAILURE, Guard, describe, is_theirs
from ._outputs import Outputs
from ._phase import ENTERING, ONLY_IN_CHAIN, EnteredAgain, Phase, SharedPhase, counted
from ._queue import RecordQueue
from ._spans import OpenSpan

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

    def __reduce__(self) -> tuple[Callable[[], HotPath], tuple[()]]:
        """A program may send ``timeline.phase`` itself: there it is that process's own."""
        return _hot_path_here, ()

    def __deepcopy__(self, _memo: object) -> HotPath:
        return self

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


def _hot_path_here() -> HotPath:
    """This process's, while it records; else one that records nothing."""
    recorder = timeline._recorder
    return _idle_hot_path() if recorder is None else recorder._hot


@functools.cache
def _idle_hot_path() -> HotPath:
    drops = Drops()
    guard = Guard(drops)
    queue = RecordQueue(0, 0, drops, wake=lambda: None)
    return HotPath(queue, guard, Outputs(guard), lambda _state: None)
