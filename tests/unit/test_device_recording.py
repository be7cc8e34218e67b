"""Brackets in the record file, from the fake device layer through the public calls."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from device_bench import MS, SECOND
from recordings import read_recording

from slime_profiler_plugin import schema, timeline
from slime_profiler_plugin.record._devices import DeviceBrackets
from slime_profiler_plugin.testing import FakeDevice, FakeDeviceError, FakeStream

pytest.importorskip("torch.profiler", reason="brackets begin once the program has loaded torch")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """A fake device in the place of torch's."""
    fake = FakeDevice(drift=10e-6)

    def open_brackets(part: Any, emit: Any) -> DeviceBrackets:
        return DeviceBrackets(part, emit, find=lambda: fake, now=fake.now)

    monkeypatch.setattr("slime_profiler_plugin.record._recorder.open_brackets", open_brackets)
    return fake


def start(out: Path, **outputs: bool) -> None:
    settings = {"out": str(out), "outputs": {"nvtx": False, "record_function": False, **outputs}}
    assert timeline.start(settings, run_id="run", role="actor", rank=0)


def train(device: FakeDevice, steps: int) -> None:
    for _ in range(steps):
        with timeline.phase("train_step"), timeline.phase("forward_backward"):
            device.launch(device.current, 3 * MS)
            device.pass_ns(SECOND // 5)


def test_each_phase_has_its_bracket(tmp_path: Path, device: FakeDevice) -> None:
    start(tmp_path)
    train(device, 20)
    timeline.stop()
    got = read_recording(tmp_path)
    brackets = {line.id: line for line in got.all(schema.Device)}
    assert set(brackets) == {phase.id for phase in got.phases}
    assert len(brackets) == 40
    assert {line.timing for line in brackets.values()} == {"device_event_bracket"}
    assert got.all(schema.Drop) == []


def test_switched_off_or_unused_there_is_none(tmp_path: Path, device: FakeDevice) -> None:
    start(tmp_path, device_events=False)
    train(device, 5)
    timeline.stop()
    assert read_recording(tmp_path).all(schema.Device) == []
    assert device.events == []


def test_sleep_keeps_what_was_not_reached_for_later(tmp_path: Path, device: FakeDevice) -> None:
    start(tmp_path)
    train(device, 3)
    with device.on(FakeStream(4)), timeline.phase("log_probs"):
        device.launch(device.current, 30 * SECOND)
    with timeline.phase("sleep"):
        device.pass_ns(60 * SECOND)
    with timeline.phase("wake_up"):
        device.pass_ns(MS)
    train(device, 10)
    timeline.stop()
    got = read_recording(tmp_path)
    bracketed = {line.id for line in got.all(schema.Device)}
    names = {phase.id: phase.name for phase in got.phases}
    assert {names[number] for number in names.keys() - bracketed} == {"sleep"}
    assert device.synchronized == 0


def test_a_device_that_fails_costs_the_brackets_only(
    tmp_path: Path, device: FakeDevice, caplog: pytest.LogCaptureFixture
) -> None:
    start(tmp_path)
    train(device, 10)
    device.error = FakeDeviceError("an illegal memory access was encountered")
    train(device, 10)
    timeline.stop()
    got = read_recording(tmp_path)
    assert len(got.phases) == 40
    reasons = {(line.what, line.reason) for line in got.all(schema.Drop)}
    assert ("device_events", "FakeDeviceError: an illegal memory access was encountered") in reasons
    assert ("device", "brackets failed") in reasons
    assert [record.message.count("device_events is off") for record in caplog.records] == [1]


def test_sigterm_loses_no_bracket_that_was_reached(
    tmp_path: Path, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last second's marks wait for an anchor; the handler places them all the same."""
    start(tmp_path)
    train(device, 3)
    recorder: Any = timeline._recorder
    monkeypatch.setattr(os, "kill", lambda _pid, _signal: None)  # where this process would end
    recorder._sigterm._handle(signal.SIGTERM, None)
    got = read_recording(tmp_path)
    assert got.end.reason == "SIGTERM"
    assert {line.id for line in got.all(schema.Device)} == {phase.id for phase in got.phases}
