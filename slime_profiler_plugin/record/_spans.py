"""Spans that need not nest: `Timeline.begin`, and the parents that generators are."""

from __future__ import annotations

import itertools
from asyncio import _get_running_loop as running_loop
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from slime_profiler_plugin._timeline import Span, noop_span

from ._context import PARENT, Node, next_id, take_out
from ._fields import plain
from ._guard import FAILURE, RAISED, is_theirs
from ._lines import check_rollout

if TYPE_CHECKING:
    from ._hot import HotPath
    from ._outputs import Opened

#: Spans that may be open and listed at once: a program that never ends its spans must not
#: grow for ever.
MOST_OPEN_SPANS: Final = 10_000


class OpenSpan:
    """What `begin` returns: a phase that need not nest and may end on another thread."""

    __slots__ = (
        "_ends",
        "_hot",
        "_opened",
        "_recorded",
        "fields",
        "id",
        "name",
        "parent",
        "rollout",
        "start_ns",
        "state",
        "task",
    )

    def __init__(self, hot: HotPath, name: str, fields: dict[str, object]) -> None:
        self._hot = hot
        self._ends = itertools.count()  # atomic: of two threads that end it one is the first
        self._opened: Opened | None = None
        self._recorded = False
        self.name = name
        self.fields = plain(fields)
        self.id = next_id()
        try:
            self.state, self.task, self.parent = hot.place()
            self.rollout = hot.current_rollout()
        except FAILURE as error:
            if is_theirs(error):
                raise
            hot.guard.failed("phase", error)
        try:
            if hot.outputs.busy():
                self._opened = hot.outputs.open_span(self)
        except FAILURE as error:
            hot.outputs.failed("record_function", error)
        self.start_ns = monotonic_ns()
        if len(hot.open) < MOST_OPEN_SPANS:
            hot.open[self.id] = self

    def __reduce__(self) -> tuple[Callable[[], Span], tuple[()]]:
        """Copied or sent, it records nothing."""
        return noop_span, ()

    def end(self, **fields: object) -> None:
        """Close the span; `fields` are added. A second call does nothing."""
        end = monotonic_ns()
        if next(self._ends):
            return
        hot = self._hot
        try:
            self._finish(end, fields)
        except RAISED as error:
            if is_theirs(error):
                self._finish(end, fields)
                raise
            hot.guard.failed("phase", error)

    def cancel(self) -> None:
        """Nothing is recorded; nor by a later `end`."""
        if next(self._ends):
            return
        hot = self._hot
        try:
            if self._opened is not None:
                self._opened.close(self)
        except FAILURE as error:
            if is_theirs(error):
                raise
            hot.guard.failed("phase", error)
        hot.open.pop(self.id, None)

    def set_rollout(self, rollout_id: object, /) -> None:
        """The span belongs to that rollout, whichever it was when it began."""
        with self._hot.guard.refusing("rollout"):
            self.rollout = check_rollout(rollout_id)

    def _finish(self, end_ns: int, fields: dict[str, object]) -> None:
        """A second time, what the first has left undone."""
        hot = self._hot
        if self._opened is not None:
            self._opened.close(self)
        if not self._recorded:
            self._recorded = True
            hot.queue.put(
                (
                    self.name,
                    self.id,
                    self.parent,
                    self.rollout,
                    self.start_ns,
                    end_ns,
                    self.state.tid,
                    self.task,
                    {**self.fields, **plain(fields)} or None,
                    None,
                )
            )
        hot.open.pop(self.id, None)

    def inside(self) -> Inside:
        """Context manager: what this thread or task records within has the span as parent."""
        return Inside(self.id, self._hot)


class Inside:
    """A span as the parent of what is recorded here and now."""

    __slots__ = ("_in_loop", "_state", "before", "id", "start_ns")

    def __init__(self, span_id: int, hot: HotPath) -> None:
        self.id = span_id
        self.start_ns = 1  # the span may end within
        self.before: Node | None = None
        self._state = hot.thread_state()
        self._in_loop = running_loop() is not None

    def __enter__(self) -> None:
        if self._in_loop:
            self.before = PARENT.get()
            PARENT.set(self)
        else:
            self.before = self._state.current
            self._state.current = self

    def __exit__(self, *exc: object) -> None:
        innermost = PARENT.get() if self._in_loop else self._state.current
        if innermost is not self:
            take_out(self, innermost)
        elif self._in_loop:
            PARENT.set(self.before)
        else:
            self._state.current = self.before
