"""NVTX ranges, record_function and device brackets of a phase."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nvtx_domain import Domain, hand_out
from recordings import read_recording, stop

from slime_profiler_plugin import timeline
from slime_profiler_plugin.record import _recorder
from slime_profiler_plugin.record._record_function import RecordFunction


class Brackets:
    """Brackets that tell what is called."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[Any] = []
        self.fails = fails

    def start(self) -> int | None:
        self.tell("start")
        return len(self.calls)

    def finish(self, _handle: int, phase_id: int) -> None:
        self.tell(("finish", phase_id))

    def suspend(self) -> None:
        self.tell("suspend")

    def close(self) -> None:
        self.tell("close")

    def tell(self, call: Any) -> None:
        if self.fails and self.fails in call:
            raise RuntimeError(f"{self.fails} failed")
        self.calls.append(call)


def start(out: Path, **outputs: bool) -> None:
    chosen = {"nvtx": False, "record_function": False, "device_events": False, **outputs}
    assert timeline.start({"out": str(out), "outputs": chosen}, run_id="run", role="actor", rank=0)


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> Domain:
    """The domain that the nvtx package will hand out."""
    domain = Domain()
    hand_out(monkeypatch, domain)
    return domain


@pytest.fixture
def brackets(monkeypatch: pytest.MonkeyPatch) -> Callable[[Brackets], Brackets]:
    """Has the recorder use the given brackets."""
    pytest.importorskip("torch.profiler")

    def use(made: Brackets) -> Brackets:
        monkeypatch.setattr(_recorder, "open_brackets", lambda _part, _emit: made)
        return made

    return use


def test_brackets_around_phases_and_spans(tmp_path: Path, brackets: Callable[[Brackets], Brackets]) -> None:
    made = brackets(Brackets())
    start(tmp_path, device_events=True)
    with timeline.phase("forward"):
        span = timeline.begin("bucket_send")
    span.end()
    with timeline.phase("sleep"):
        pass
    got = stop(tmp_path)
    forward, send = got.one("forward").id, got.one("bucket_send").id
    assert made.calls == ["start", "start", ("finish", forward), ("finish", send), "suspend", "close"]


@pytest.mark.parametrize("fails", ["start", "finish", "suspend", "close"])
def test_brackets_that_raise_are_off_from_then_on(
    tmp_path: Path,
    brackets: Callable[[Brackets], Brackets],
    caplog: pytest.LogCaptureFixture,
    fails: str,
) -> None:
    made = brackets(Brackets(fails))
    start(tmp_path, device_events=True)
    for name in ("a", "sleep", "b"):
        with timeline.phase(name):
            pass
    timeline.stop()
    got = read_recording(tmp_path)
    assert [p.name for p in got.phases] == ["a", "sleep", "b"]
    assert len(caplog.records) == 1
    assert f"{fails} failed" in caplog.text
    assert [(d.what, d.count) for d in got.drops] == [("device_events", 1)]
    assert made.calls.count("start") == {"start": 0, "finish": 1, "suspend": 1, "close": 2}[fails]


def annotations(tmp_path: Path, work: Callable[[], object]) -> list[tuple[str, str]]:
    """(name, category) of the named events of `work` under torch's profiler."""
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        work()
    path = tmp_path / "trace.json"
    profile.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    return [(e["name"], e["cat"]) for e in events if e.get("ph") == "X" and e["name"].startswith("p_")]


def phases_in_and_out_of_tasks() -> None:
    async def main() -> None:
        with timeline.phase("p_task"):
            await asyncio.sleep(0)

    with timeline.phase("p_outer"), timeline.phase("p_inner", step=1):
        pass
    asyncio.run(main())


def test_under_a_profiler_phases_are_user_annotations(tmp_path: Path) -> None:
    start(tmp_path / "out", record_function=True)
    found = annotations(tmp_path, phases_in_and_out_of_tasks)
    assert sorted(found) == [("p_inner", "user_annotation"), ("p_outer", "user_annotation")]
    assert len(stop(tmp_path / "out").phases) == 3


def test_the_public_record_function_is_the_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    for name in ("_record_function_with_args_enter", "_profiler_enabled"):
        monkeypatch.delattr(torch._C._autograd, name)
    start(tmp_path / "out", record_function=True)
    found = annotations(tmp_path, phases_in_and_out_of_tasks)
    assert sorted(found) == [("p_inner", "user_annotation"), ("p_outer", "user_annotation")]


def test_switched_off_it_annotates_nothing(tmp_path: Path) -> None:
    start(tmp_path / "out")
    assert annotations(tmp_path, phases_in_and_out_of_tasks) == []


def test_the_gate_is_per_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch.profiler")
    entered: list[str] = []
    enter = RecordFunction.__init__

    def spy(self: RecordFunction, torch: Any, *, gated: bool) -> None:
        enter(self, torch, gated=gated)
        real = self.enter
        self.enter = lambda name: (entered.append(name), real(name))[1]

    monkeypatch.setattr(RecordFunction, "__init__", spy)
    start(tmp_path / "out", record_function=True)

    def work(name: str) -> None:
        with timeline.phase(name):
            pass

    def in_two_threads() -> None:
        other = threading.Thread(target=work, args=("p_other",))
        other.start()
        other.join()
        work("p_here")

    work("p_before")
    found = annotations(tmp_path, in_two_threads)
    work("p_after")
    assert entered == ["p_here"]
    assert found == [("p_here", "user_annotation")]


def test_a_profiler_that_starts_or_stops_inside_a_phase(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    start(tmp_path / "out", record_function=True)
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with timeline.phase("p_before"):
        profile.start()
    with timeline.phase("p_across"):
        profile.stop()
    with timeline.phase("p_after"):
        pass
    got = stop(tmp_path / "out")
    assert got.parent_names() == {"p_before": None, "p_across": None, "p_after": None}
    assert not got.drops


@pytest.mark.parametrize("fails", ["enter", "exit", "active"])
def test_record_function_that_raises_is_off_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    pytest.importorskip("torch.profiler")

    def fail(*_args: object) -> Any:
        raise RuntimeError(f"{fails} failed")

    make = RecordFunction.__init__

    def broken(self: RecordFunction, torch: Any, *, gated: bool) -> None:
        make(self, torch, gated=gated)
        self.enter, self.exit, self.active = str, str, lambda: True
        setattr(self, fails, fail)

    monkeypatch.setattr(RecordFunction, "__init__", broken)
    start(tmp_path, record_function=True)
    for name in "abc":
        with timeline.phase(name):
            pass
    got = stop(tmp_path)
    assert [p.name for p in got.phases] == ["a", "b", "c"]
    assert len(caplog.records) == 1
    assert [(d.what, d.count) for d in got.drops] == [("record_function", 1)]


class RecordFunctionOfTexts:
    """As torch's: a name that is no text is a `TypeError`, one that is no UTF-8 a `UnicodeError`."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def active(self) -> bool:
        return True

    def enter(self, name: object) -> str:
        if not isinstance(name, str):
            raise TypeError("a str is needed")
        name.encode()
        self.calls.append(name)
        return name

    def exit(self, name: str) -> None:
        self.calls.append(f"/{name}")


@pytest.mark.parametrize("odd", [7, None, "\udcff"])
def test_a_name_that_is_no_text_leaves_the_outputs_of_others_alone(
    tmp_path: Path,
    domain: Domain,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    odd: Any,
) -> None:
    annotations = RecordFunctionOfTexts()
    start(tmp_path, nvtx=True)
    outputs = timeline._recorder._outputs  # type: ignore[union-attr]
    monkeypatch.setattr(outputs, "record_function", annotations)
    with timeline.phase(odd):
        pass
    with timeline.phase("forward"):
        pass
    timeline.begin(odd).end()
    got = stop(tmp_path)
    assert annotations.calls == ["forward", "/forward"]
    if not isinstance(odd, str):
        assert domain.calls == [("push", "<forward:trainer>"), ("pop",)]
    assert len(got.phases) == 3
    assert not got.drops
    assert not caplog.records
