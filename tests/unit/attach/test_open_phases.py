"""Phases that begin and end in calls of their own."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from recordings import stop

from slime_profiler_plugin import timeline
from slime_profiler_plugin.attach._open_phases import OpenPhases


@pytest.fixture
def out(tmp_path: Path) -> Path:
    assert timeline.start({"out": str(tmp_path), "outputs": {"nvtx": False}})
    return tmp_path


def test_an_exception_closes_what_is_open_inside_and_goes_on(out):
    phases = OpenPhases()

    def fails() -> None:
        phases.begin("timer", "forward", {})
        raise ValueError("of the program's")

    with pytest.raises(ValueError, match="of the program's"):
        phases.around("forward_backward", fails, {})
    assert phases.around("optimizer", lambda: 5, {"step": 3}) == 5
    recording = stop(out)
    found = {phase.name: (phase.parent, phase.error) for phase in recording.phases}
    outer = recording.one("forward_backward").id
    error = "ValueError: of the program's"
    assert found == {
        "forward_backward": (None, error),
        "forward": (outer, error),
        "optimizer": (None, None),
    }
    assert recording.one("optimizer").step == 3


def test_directly_inside_itself_a_phase_is_recorded_once(out):
    phases = OpenPhases()

    def inner() -> int:
        phases.begin("timer", "optimizer", {})
        value = phases.around("zero_grad", lambda: 1, {})
        phases.end("timer")
        return value + phases.around("optimizer", lambda: 1, {})

    assert phases.around("optimizer", inner, {}) == 2
    assert sorted(phase.name for phase in stop(out).phases) == ["optimizer", "zero_grad"]


def test_threads_have_phases_of_their_own(out):
    phases = OpenPhases()
    phases.begin("timer", "forward", {})
    other = threading.Thread(target=lambda: phases.around("forward", lambda: None, {}))
    other.start()
    other.join()
    phases.end("timer")
    found = stop(out).phases
    assert [phase.name for phase in found] == ["forward"] * 2
    assert all(phase.parent is None for phase in found)


def test_a_failure_of_ours_stays_ours(out, monkeypatch, caplog):
    phases = OpenPhases()

    def broken(*_args: object, **_fields: object) -> object:
        raise OSError("no")

    monkeypatch.setattr(timeline, "phase", broken)
    assert phases.around("forward", lambda: 5, {}) == 5
    phases.begin("timer", "forward", {})
    phases.end("timer")
    monkeypatch.undo()
    assert caplog.text.count("OSError: no") == 1
    timeline.mark("end")
    assert [drop.what for drop in stop(out).drops] == ["attach: phase"]


def test_while_off_nothing_is_kept():
    phases = OpenPhases()
    assert phases.around("forward", lambda: 5, {}) == 5
    phases.begin("timer", "forward", {})
    phases.end("timer")
    assert phases.opened() == []
