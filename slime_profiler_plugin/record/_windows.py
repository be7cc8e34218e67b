"""torch.profiler windows by a schedule of rollouts.

One profiler step is one new rollout id; which of them are recorded is decided by
`torch.profiler.schedule` itself. A window ends where the rank waits anyway (`export`), or
when the next rollout begins.

How large a window's JSON will be is not known before it is written, and torch does not
count events while it records. So it is estimated, at the ends of phases: in a process's
first window, each `_CHECK_NS`, from the host memory it has taken since its start; later from
the bytes per second of the window before. Past `max_bytes` the window is cut there.
"""

from __future__ import annotations

import logging
import math
import sys
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from slime_profiler_plugin.config import selects_rank

from ._compress import Compressor
from ._window import Window, WindowError, claim, resident_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from slime_profiler_plugin._timeline import PhaseContext
    from slime_profiler_plugin.config import Config, Profiler, Schedule
    from slime_profiler_plugin.layout import RunPaths
    from slime_profiler_plugin.schema import Process

_log: Final = logging.getLogger("slime_profiler_plugin")

#: ns between two looks at how large a window has become.
_CHECK_NS: Final = 250_000_000
_NEVER: Final = sys.maxsize
#: Bytes of JSON per byte of host memory that recording takes, at most. On a CPU it is 1.1,
#: with shapes 1.7 (measured). Device activities are held much denser; their figure is reckoned from
#: the sizes of CUPTI's records, about 60 to 200 bytes for 350 to 700 of JSON.
_JSON_PER_MEMORY_CPU: Final = 2.0
_JSON_PER_MEMORY_DEVICE: Final = 6.0
#: How long the end of the process waits for a trace to be compressed. 500 MB take about 1 s.
_CLOSE_S: Final = 20.0
_MOST_NAMES: Final = 20


_CUT: Final = "window cut short at max_bytes"
_IN_THE_WAY: Final = "window asked for by the driver: one of the schedule is in the way"


class WindowsContext(Protocol):
    """What the recorder hands to this part."""

    @property
    def identity(self) -> Process: ...
    @property
    def paths(self) -> RunPaths: ...
    @property
    def config(self) -> Config: ...
    def drop(self, what: str, reason: str, count: int = 1) -> None: ...


def _make_schedule(schedule: Schedule | None) -> Callable[[int], Any]:
    """What torch.profiler makes of it."""
    import torch.profiler

    if schedule is None:
        return lambda _step: torch.profiler.ProfilerAction.NONE
    with warnings.catch_warnings():  # torch advises a warm-up; the user has chosen
        warnings.simplefilter("ignore")
        made: Callable[[int], Any] = torch.profiler.schedule(
            wait=schedule.wait,
            warmup=schedule.warmup,
            active=schedule.active,
            repeat=schedule.repeat,
            skip_first=schedule.skip_first,
        )
    return made


def selects_process(profiler: Profiler | None, identity: Process) -> bool:
    """Whether windows are to be recorded in the process that `identity` describes."""
    return (
        profiler is not None
        and identity.role in profiler.roles
        and selects_rank(profiler.ranks, identity.rank, identity.world_size)
    )


class ProfilerWindows:
    """The windows of this process.

    `phase` makes the phase ``profiler_export`` around the writing of a window. It should
    not be a ``record_function`` too: the window ends inside it. `is_asked_for` is told of each
    rollout that begins: whether it is to be recorded although the schedule says nothing of it.

    A window that cannot be recorded or written is counted and given up, with one warning
    for the process; the next is tried. Whatever else goes wrong is raised, for the
    recorder's guard. All methods belong to the thread that calls `on_rollout`.
    """

    def __init__(
        self,
        context: WindowsContext,
        phase: Callable[..., PhaseContext],
        is_asked_for: Callable[[int], bool] = lambda _rollout: False,
    ) -> None:
        import torch.profiler

        settings = context.config.profiler
        if settings is None:
            raise ValueError("the configuration asks for no profiler windows")
        self._context = context
        self._settings = settings
        self._phase = phase
        self._is_asked_for = is_asked_for
        self._action = torch.profiler.ProfilerAction
        self._schedule = _make_schedule(settings.schedule)
        self._compressor = Compressor(self._count_loss)
        self._rollout: int | None = None
        self._step = -1
        self._window: Window | None = None
        #: Whether the current rollout is the last of its window.
        self._last = False
        #: The window of this cycle was lost or cut: wait for the next one.
        self._skipping = False
        self._given_up = False
        self._warned = False
        self._bytes_per_s: float | None = None
        self._memory_at_start = 0
        #: Call `check` at the end of a phase that ends at or after this, in monotonic ns.
        self.check_at_ns: int = _NEVER

    def on_rollout(self, rollout: int | str | None) -> None:
        """A rollout begins. Nothing, when `rollout` is no number or the current one."""
        if not isinstance(rollout, int) or rollout == self._rollout:
            return
        self.export()
        self._rollout = rollout
        self._step += 1
        is_asked = self._is_asked_for(rollout)
        if self._given_up:
            return
        if self._window is not None and not self._window.on_its_thread():
            reason = "window goes on: it was begun on another thread, and only that one can end it"
            self._report(reason, reason)
            return
        action = self._schedule(self._step)
        if is_asked:
            action = self._take_request(action)
        self._last = action == self._action.RECORD_AND_SAVE
        if action == self._action.NONE or self._skipping:
            self._skipping = self._skipping and action == self._action.RECORD
            return
        try:
            self._go_on(action == self._action.WARMUP, rollout)
        except (RuntimeError, OSError) as error:
            self._lose("window not recorded", error)

    def export(self) -> None:
        """Write a window whose last rollout this is, or that was cut; nothing otherwise."""
        window = self._window
        if window is None or not window.rollouts or not window.on_its_thread():
            return
        if self._last or not window.recording:
            self._export(window)

    def check(self) -> None:
        """Cut the window if it has grown past `max_bytes`. For the ends of phases."""
        window = self._window
        if window is None or not window.recording or not window.on_its_thread():
            return
        now = time.monotonic_ns()
        estimate = self._estimate_bytes(window, now - window.start_ns)
        if estimate < self._settings.max_bytes:
            self.check_at_ns = now + _CHECK_NS
            return
        self.check_at_ns = _NEVER
        reason = (
            f"about {estimate / 1e6:.1f} MB of JSON after {(now - window.start_ns) / 1e9:.1f} s, "
            f"max_bytes is {self._settings.max_bytes / 1e6:.1f} MB"
        )
        try:
            with self._phase("profiler_export", cut=reason):
                window.stop(cut=reason)
        except (RuntimeError, OSError) as error:
            self._lose("window lost while it was cut", error)
        else:
            self._report(_CUT, f"{_CUT}: {reason}")

    def close(self) -> None:
        """The process ends: write an open window, finish compressing, within a bounded time."""
        window = self._window
        if window is not None and window.rollouts:
            self._export(window, cut=None if self._last else "the process ended")
        self._close_window()
        self._given_up = True
        if not self._compressor.close(_CLOSE_S):
            self._count_loss(f"a trace stays uncompressed: not done after {_CLOSE_S:.0f} s")

    def abandon(self, reason: str) -> None:
        """Count an open window as lost and write nothing: for an end that leaves no time."""
        window, self._window = self._window, None
        self._given_up = True
        self.check_at_ns = _NEVER
        if window is not None and window.rollouts:
            self._count_loss(f"window not written: {reason}")

    def _take_request(self, action: Any) -> Any:
        """What to do in a rollout for which the driver asks for a window and the schedule for `action`."""
        if action == self._action.NONE:
            self._skipping = False
            return self._action.RECORD_AND_SAVE
        if action == self._action.WARMUP or self._skipping:
            self._count_loss(_IN_THE_WAY)
        return action

    def _go_on(self, warm_up: bool, rollout: int) -> None:
        window = self._window
        if window is None:
            window = self._window = Window(self._settings, self._context.identity)
            window.prepare()
        if warm_up:
            return
        if not window.rollouts:
            self._memory_at_start = resident_bytes()
            window.start()
            self.check_at_ns = window.start_ns + (self._allowed_ns() or _CHECK_NS)
        window.begin_rollout(rollout)

    def _allowed_ns(self) -> int | None:
        """How long a window may record, by the rate of the one before; ``None`` in the first."""
        if self._bytes_per_s is None:
            return None
        return math.ceil(self._settings.max_bytes * 1e9 / self._bytes_per_s)

    def _estimate_bytes(self, window: Window, elapsed_ns: int) -> float:
        if self._bytes_per_s is not None:
            return self._bytes_per_s * elapsed_ns / 1e9
        factor = _JSON_PER_MEMORY_CPU if set(window.activities) == {"cpu"} else _JSON_PER_MEMORY_DEVICE
        return (resident_bytes() - self._memory_at_start) * factor

    def _export(self, window: Window, cut: str | None = None) -> None:
        started = time.monotonic_ns()
        try:
            with self._phase("profiler_export"):
                window.stop(cut)
                path = self._claim_path(window)
                size = window.write(path)
        except (RuntimeError, OSError) as error:
            self._lose("window not written", error)
            return
        seconds = (time.monotonic_ns() - started) / 1e9
        self._bytes_per_s = size * 1e9 / max(1, window.stop_ns - window.start_ns)
        self._compressor.add(path)
        self._close_window()
        if seconds > self._settings.max_export_s:
            self._given_up = True
            reason = (
                f"export took {seconds:.1f} s, max_export_s is {self._settings.max_export_s:g}: "
                "no more windows in this process"
            )
            self._report(reason, reason)

    def _claim_path(self, window: Window) -> Path:
        """Of the whole file while it is not compressed yet.

        Ranks that do not know their rank differ in the start only, and some of hundreds may
        start within one ns: the later one's file is a ns later.
        """
        who = self._context.identity
        for later in range(_MOST_NAMES):
            final = self._context.paths.trace_file(
                window.rollouts[0], who.role or "process", who.rank, window.start_unix_ns + later
            )
            path = final.with_suffix("")
            if claim(path):
                return path
        raise WindowError(f"{_MOST_NAMES} file names are taken")

    def _close_window(self) -> None:
        """Done with the window, and with its cycle if that goes on."""
        window, self._window = self._window, None
        self._skipping = not self._last
        self.check_at_ns = _NEVER
        if window is not None:
            window.close()

    def _lose(self, what: str, error: OSError | RuntimeError) -> None:
        # The reason that is counted names no path: the same failure is the same reason.
        brief = (error.strerror or type(error).__name__) if isinstance(error, OSError) else error
        self._report(f"{what}: {brief}", f"{what}: {error}")
        try:
            self._close_window()
        except (RuntimeError, OSError) as another:
            self._count_loss(f"window not closed: {another}")

    def _report(self, reason: str, details: str) -> None:
        self._count_loss(reason)
        if not self._warned:
            self._warned = True
            _log.warning(
                "slime_profiler_plugin: profiler %s (told once; the record file counts them all)", details
            )

    def _count_loss(self, reason: str) -> None:
        self._context.drop("trace", reason)
