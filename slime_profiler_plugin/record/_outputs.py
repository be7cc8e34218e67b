"""The outputs of a phase besides its record: NVTX range, record_function, device bracket.

Each is closed in the reverse order of opening, so that they nest. One that raises is
disabled by the guard; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final, Protocol

from ._guard import FAILURE, RAISED, Guard, is_theirs
from ._record_function import RecordFunction, loaded_torch

if TYPE_CHECKING:
    from ._nvtx import NvtxRanges
    from ._phase import Phase
    from ._spans import OpenSpan


#: Around the end of a torch.profiler window: an annotation would begin inside it and end outside.
_EXPORT: Final = "profiler_export"
#: The process gives its device memory away, and is not to be waited for by its device events.
_SLEEP: Final = "sleep"


class Brackets(Protocol):
    """What is needed of the device-event brackets."""

    def start(self) -> Any | None:
        """Mark the current stream; ``None`` where that is not possible now."""

    def finish(self, handle: Any, phase_id: int) -> None:
        """Mark it again: the bracket of phase `phase_id` is whole."""

    def suspend(self) -> None:
        """The process is about to give its device memory away."""

    def close(self) -> None:
        """Emit what was reached, count the rest."""


class Windows(Protocol):
    """What is needed of the torch.profiler windows."""

    #: Monotonic ns from which `check` is to be called at the end of a phase.
    check_at_ns: int

    def check(self) -> None:
        """Cut the open window if it has grown too large."""


class Outputs:
    """The outputs in use.

    record_function and the brackets need torch, which the program may import at any time:
    until it has, each phase looks for it.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        nvtx: NvtxRanges | None = None,
        record_function_gated: bool | None = None,
        make_brackets: Callable[[Any], Brackets | None] | None = None,
    ) -> None:
        """`record_function_gated`: ``None`` for no record_function. `make_brackets` gets torch."""
        self.guard = guard
        self.nvtx = nvtx
        self.record_function: RecordFunction | None = None
        self.brackets: Brackets | None = None
        self.windows: Windows | None = None
        self._gated = record_function_gated
        self._make_brackets = make_brackets
        self._awaits_torch = record_function_gated is not None or make_brackets is not None
        #: Whether a phase has to be opened here too. A C function where that is possible.
        self.busy: Callable[[], bool] = bool
        self._choose_busy()

    def open(self, phase: Phase) -> Opened:
        """Open what is in use for `phase`.

        Push/pop ranges and record_function nest per thread, and asyncio tasks interleave on
        theirs: a phase inside a task has a free-standing range and no record_function.
        """
        opened = Opened(self)
        try:
            if isinstance(phase.name, str):
                self._open_named(opened, phase)
            self._open(opened, phase)
        except RAISED:  # the program's: there will be no end to close it at
            opened.close(phase)
            raise
        return opened

    def _open_named(self, opened: Opened, phase: Phase) -> None:
        """What bears the phase's name; one that is no text, or cannot be UTF-8, has none of these."""
        if self.nvtx is not None:
            try:
                if phase.task is None:
                    self.nvtx.push(self.nvtx.attributes[phase.rollout][phase.name])
                    opened.pushed = True
                else:
                    opened.range = self.nvtx.start(self.nvtx.attributes[phase.rollout][phase.name])
            except UnicodeError:
                pass
            except FAILURE as error:
                self.failed("nvtx", error)
        if self.record_function is not None and phase.task is None and phase.name != _EXPORT:
            try:
                if self.record_function.active():
                    opened.annotation = self.record_function.enter(phase.name)
            except UnicodeError:
                pass
            except FAILURE as error:
                self.failed("record_function", error)

    def _open(self, opened: Opened, phase: Phase) -> None:
        if self.brackets is not None and isinstance(phase.name, str) and phase.name == _SLEEP:
            try:
                self.brackets.suspend()
            except FAILURE as error:
                self.failed("device_events", error)
        else:
            self._start_bracket(opened)

    def open_span(self, span: OpenSpan) -> Opened:
        """The same for a span, which nests in nothing."""
        opened = Opened(self)
        if self.nvtx is not None and isinstance(span.name, str):
            try:
                opened.range = self.nvtx.start(self.nvtx.attributes[span.rollout][span.name])
            except UnicodeError:
                pass
            except FAILURE as error:
                self.failed("nvtx", error)
        self._start_bracket(opened)
        return opened

    def mark_clock(self) -> None:
        """A good time to say our clocks in every output that has its own."""
        if self.nvtx is not None:
            try:
                self.nvtx.mark_clock()
            except FAILURE as error:
                self.failed("nvtx", error)

    def watch(self, windows: Windows) -> None:
        """From now on `windows` is told when it is time to look at the open window's size."""
        self.windows = windows
        self._choose_busy()

    def close(self) -> None:
        """Open nothing from now on; what is open is still closed."""
        self._awaits_torch = False
        self.busy = bool
        brackets, self.brackets = self.brackets, None
        if brackets is not None:
            self.guard.call("device_events", brackets.close)

    def abandon(self) -> None:
        """In a forked child, where no device and no profiler is ours: open and close nothing."""
        self._awaits_torch = False
        self.busy = bool
        self.brackets = self.record_function = self.nvtx = self.windows = None

    def failed(self, part: str, error: BaseException) -> None:
        """`part` raised: it is out of use from now on. What is the program's own is raised again."""
        if is_theirs(error):
            raise error
        if part == "nvtx":
            self.nvtx = None
        elif part == "record_function":
            self.record_function = None
            self._gated = None
            self._awaits_torch = self._awaits_torch and self._make_brackets is not None
        elif part == "windows":
            self.windows = None
        else:
            self.brackets = None
        self._choose_busy()
        self.guard.failed(part, error)

    def _start_bracket(self, opened: Opened) -> None:
        if self.brackets is not None:
            try:
                opened.bracket = self.brackets.start()
            except FAILURE as error:
                self.failed("device_events", error)

    def _choose_busy(self) -> None:
        if self.nvtx is not None or self.brackets is not None:
            self.busy = _yes if not self._awaits_torch else self._find_torch
        elif self._awaits_torch:
            self.busy = self._find_torch
        elif self.record_function is not None:
            self.busy = self.record_function.active  # also True while one of our windows is open
        elif self.windows is not None:
            self.busy = _yes
        else:
            self.busy = bool  # C, and False

    def _find_torch(self) -> bool:
        torch = loaded_torch()
        if torch is None:
            return self.nvtx is not None
        self._awaits_torch = False
        if self._gated is not None:
            self.record_function = self.guard.call(
                "record_function", RecordFunction, torch, gated=self._gated
            )
        if self._make_brackets is not None:
            self.brackets = self.guard.call("device_events", self._make_brackets, torch)
        self._choose_busy()
        return self.busy()


class Opened:
    """What was opened for one phase or span."""

    __slots__ = ("_outputs", "annotation", "bracket", "pushed", "range")

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        self.pushed = False
        self.range: int | None = None
        self.annotation: Any | None = None
        self.bracket: Any | None = None

    def close(self, phase: Phase | OpenSpan) -> bool:
        """Close it all. False: what it was opened for ends too. A second time does nothing."""
        try:
            self._close(phase)
        except RAISED:  # the program's: the rest is closed before it goes on
            self._close(phase)
            raise
        return False

    def _close(self, phase: Phase | OpenSpan) -> None:
        outputs = self._outputs
        bracket, self.bracket = self.bracket, None
        if bracket is not None and outputs.brackets is not None:
            try:
                outputs.brackets.finish(bracket, phase.id)
            except FAILURE as error:
                outputs.failed("device_events", error)
        annotation, self.annotation = self.annotation, None
        if annotation is not None and outputs.record_function is not None:
            try:
                outputs.record_function.exit(annotation)
            except FAILURE as error:
                outputs.failed("record_function", error)
        windows = outputs.windows
        if windows is not None and monotonic_ns() >= windows.check_at_ns:
            try:
                windows.check()
            except FAILURE as error:
                outputs.failed("windows", error)
        pushed, self.pushed = self.pushed, False
        span, self.range = self.range, None
        if outputs.nvtx is not None:
            try:
                if pushed:
                    outputs.nvtx.pop()
                elif span is not None:
                    outputs.nvtx.end(span)
            except FAILURE as error:
                outputs.failed("nvtx", error)


def _yes() -> bool:
    return True
