"""A signal handler of the program raises in the middle of our code, as timeouts do."""

from __future__ import annotations

import dis
import functools
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from recordings import stop

import slime_profiler_plugin.record
from slime_profiler_plugin import timeline
from slime_profiler_plugin.record._drops import Drops
from slime_profiler_plugin.record._guard import Guard, is_theirs

OURS = str(Path(slime_profiler_plugin.record.__file__).parent)


FIRST_STEP_OF_EXIT = "__exit__:first"


class TimeoutOfTheirsError(Exception):
    """The program's."""


@pytest.fixture(params=[TimeoutOfTheirsError, KeyboardInterrupt])
def raised(request: pytest.FixtureRequest) -> Iterator[type[BaseException]]:
    """What SIGUSR1 raises."""

    def handler(_number: int, _frame: FrameType | None) -> None:
        raise request.param

    before = signal.signal(signal.SIGUSR1, handler)
    yield request.param
    signal.signal(signal.SIGUSR1, before)


def start(out: Path) -> None:
    assert timeline.start({"out": str(out), "outputs": {"nvtx": False}}, run_id="run", role="actor", rank=0)


#: After these the interpreter looks for signals.
LOOKS_AFTER = ("CALL", "RESUME", "JUMP_BACKWARD")


class SignalAt:
    """Sends SIGUSR1 at the `turn`-th step within the recorder at which signals are handled."""

    def __init__(self, turn: int) -> None:
        self.left = turn
        self.at = ""
        self._last: dict[FrameType, str] = {}

    def __call__(self, frame: FrameType, event: str, _arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes = True
        if event == "call":
            self._last[frame] = "RESUME"
        elif event == "opcode":
            last = self._last.get(frame, "")
            self._last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            self.left -= last.startswith(LOOKS_AFTER)
            if self.left == 0:
                self.left = -1
                self._last.clear()
                first = "first" if last == "RESUME" else frame.f_lineno
                self.at = f"{frame.f_code.co_name}:{first}"
                signal.raise_signal(signal.SIGUSR1)
        return self


def interrupt_everywhere(work: Callable[[], None], raised: type[BaseException], probe: str) -> int:
    """Run `work`, interrupted at each step in turn; a phase `probe` after each. Returns their number."""
    for turn in range(1, 10_000):
        interruption = SignalAt(turn)
        before = sys.gettrace()
        try:
            sys.settrace(interruption)
            work()
        except raised:
            came = True
        else:
            came = False
        finally:
            sys.settrace(before)
        if not interruption.at:
            return turn - 1
        assert came, f"the program's {raised.__name__} at {interruption.at} went no further"
        if interruption.at == FIRST_STEP_OF_EXIT:
            timeline.flush()  # what only the last phase left behind is found by the writer
        with timeline.phase(probe, at=interruption.at):
            pass
    raise AssertionError("it did not end")


def nested() -> None:
    with timeline.phase("outer"), timeline.phase("inner", step=1):
        pass


def in_span() -> None:
    span = timeline.begin("span")
    span.end(bytes=1)


@pytest.mark.parametrize("work", [nested, in_span])
def test_what_it_raises_goes_on_and_leaves_no_stale_parent(
    tmp_path: Path, raised: type[BaseException], work: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    start(tmp_path)
    steps = interrupt_everywhere(work, raised, "probe")
    assert steps > 10
    got = stop(tmp_path)
    probes = [p for p in got.phases if p.name == "probe"]
    assert [p.attrs for p in probes if p.parent is not None] == []
    assert len(probes) == steps
    lost = work is nested  # the outermost, at the first step of its exit
    assert [(d.what, d.reason, d.count) for d in got.drops] == [
        ("phase", "interrupted before its end", 1)
    ] * lost
    assert not caplog.records
    outer = {p.id for p in got.phases if p.name == "outer"}
    inner = [p for p in got.phases if p.name == "inner"]
    assert sum(p.parent not in outer for p in inner) == len(got.drops), "an outer phase vanished"
    assert len({p.id for p in got.phases}) == len(got.phases), "one was written twice"


def test_the_open_phase_is_closed_and_has_the_error(tmp_path: Path, raised: type[BaseException]) -> None:
    start(tmp_path)
    with pytest.raises(raised), timeline.phase("outer"), timeline.phase("inner"):
        signal.raise_signal(signal.SIGUSR1)
    got = stop(tmp_path)
    assert got.one("inner").error == got.one("outer").error == raised.__name__


def test_it_goes_through_the_guard_which_disables_nothing(raised: type[BaseException]) -> None:
    drops = Drops()
    guard = Guard(drops)
    with pytest.raises(raised), guard("flush"):
        signal.raise_signal(signal.SIGUSR1)
    with pytest.raises(raised):
        guard.call("windows", signal.raise_signal, signal.SIGUSR1)
    assert not guard.disabled("flush")
    assert not guard.disabled("windows")
    assert not drops.take()


def of_any_arguments(*_arguments: object) -> None:
    raise TimeoutOfTheirsError


def with_more(_more: str, _number: int, _frame: FrameType | None) -> None:
    raise TimeoutOfTheirsError


class Handler:
    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.further()

    def further(self) -> None:
        raise TimeoutOfTheirsError


@pytest.mark.parametrize("handler", [of_any_arguments, functools.partial(with_more, "more"), Handler()])
def test_handlers_of_all_kinds_are_known(handler: Any) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(TimeoutOfTheirsError) as caught:
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert is_theirs(caught.value)


def test_a_failure_of_ours_is_no_handlers() -> None:
    def fails(_number: int, _frame: object) -> None:
        raise TimeoutOfTheirsError

    with pytest.raises(TimeoutOfTheirsError) as caught:
        fails(3, None)
    assert not is_theirs(caught.value)
