"""When a weight sync takes unusually long, the driver asks for a profiler window some rollouts later.

The driver alone decides, by the times that it sees itself; the others read what it publishes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic_ns, time_ns
from types import TracebackType
from typing import Final

from slime_profiler_plugin import schema
from slime_profiler_plugin.config import Trigger

from ._part import PartContext
from ._window_requests import PART, RunInWriter, WindowRequest, publish

#: Of the last syncs, by which the next is judged.
_KEPT: Final = 200
#: Rollouts from the sync to the window, at least. What is published in rollout r, every writer finds as r + 2
#: begins, also where samples of r + 1 were under way already. It is used as the next one begins.
_AHEAD: Final = 3
_MARK: Final = "slow_sync"


class SyncTimes:
    """How long the last syncs took.

    Judged by nearest rank: of 4 times the 95th percentile is the largest, of 100 the 95th.

    >>> times = SyncTimes(Trigger(sync_over_p95=1.5, min_syncs=4))
    >>> [times.judge(seconds) for seconds in (10, 11, 10, 12, 18, 28, 28)]
    [None, None, None, None, None, 18, None]
    """

    def __init__(self, settings: Trigger) -> None:
        self._settings = settings
        self._last: deque[int] = deque(maxlen=_KEPT)

    def __len__(self) -> int:
        return len(self._last)

    def judge(self, took: int) -> int | None:
        """Keep one more; the 95th percentile of those before, where it took unusually long."""
        before = sorted(self._last)
        self._last.append(took)
        if len(before) < self._settings.min_syncs:
            return None
        p95 = before[-(-95 * len(before) // 100) - 1]
        return p95 if took > p95 * self._settings.sync_over_p95 else None


def choose_rollout(now: int, before: int | None) -> int:
    """The rollout of the window that is asked for in rollout `now`: one that a sync follows.

    `before`: of the sync before this one.

    >>> choose_rollout(10, 9), choose_rollout(10, 8), choose_rollout(10, 6), choose_rollout(10, None)
    (13, 14, 14, 13)
    """
    step = 1 if before is None else max(1, now - before)
    return now - (-_AHEAD // step) * step


class SlowSyncs:
    """`Timeline.watch_sync`, in the process that calls it. All of it belongs to that thread."""

    def __init__(
        self,
        part: PartContext,
        settings: Trigger,
        rollout: Callable[[], schema.Rollout],
        mark: Callable[..., None],
        run: RunInWriter,
    ) -> None:
        self._part = part
        self._settings = settings
        self._rollout = rollout
        self._mark = mark
        self._run = run
        self._times = SyncTimes(settings)
        self._asked = 0
        #: Of the last sync, and of the last window.
        self._last: int | None = None
        self._window = -1

    def watch(self) -> WatchedSync:
        """A context manager around one sync."""
        return WatchedSync(self)

    def ended(self, took_ns: int) -> None:
        """One sync is over."""
        with self._part.guard(PART):
            now = self._rollout()
            if not isinstance(now, int):
                return  # the first, which connects as well
            before, self._last = self._last, now
            if now == self._window:
                return  # the profiler itself makes it slow
            known = len(self._times)
            p95_ns = self._times.judge(took_ns)
            if p95_ns is None or now < self._window or self._asked >= self._settings.windows:
                return
            self._ask(choose_rollout(now, before), now, took_ns, p95_ns, known)

    def _ask(self, rollout: int, now: int, took_ns: int, p95_ns: int, known: int) -> None:
        self._asked += 1
        self._window = rollout
        self._mark(_MARK, took_ns=took_ns, p95_ns=p95_ns, window=rollout)
        request = WindowRequest(
            rollout=rollout,
            asked_in=now,
            took_ns=took_ns,
            p95_ns=p95_ns,
            syncs=known,
            at_unix_ns=time_ns(),
        )
        self._run(PART, lambda: publish(self._part, request, self._settings.windows))


class WatchedSync:
    """One sync; where it raises, it is not judged."""

    __slots__ = ("_start_ns", "_syncs")

    def __init__(self, syncs: SlowSyncs) -> None:
        self._syncs = syncs
        self._start_ns = 0

    def __enter__(self) -> None:
        self._start_ns = monotonic_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._syncs.ended(monotonic_ns() - self._start_ns)
