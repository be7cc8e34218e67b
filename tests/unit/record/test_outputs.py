"""NVTX ranges, record_function and device brackets of a phase."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from recordings import read_recording, stop

from slime_profiler_plugin import timeline
from slime_profiler_plugin.clock import read_pair
from slime_profiler_plugin.record import _nvtx, _recorder
from slime_profiler_plugin.record._nvtx import MOST_NAMES, MOST_ROLLOUTS, NvtxRanges
from slime_profiler_plugin.record._record_function import RecordFunction

GROUPS = ("trainer", "sync", "engine", "rollout", "user")


def told(attributes: SimpleNamespace) -> str:
    """Attributes as one word: name, category, payload."""
    rollout = "" if attributes.payload is None else f"@{attributes.payload}"
    return f"<{attributes.message}:{GROUPS[attributes.category - 1]}{rollout}>"


class Domain:
    """An NVTX domain that tells what is called."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.ranges = 0
        self.registered: list[str] = []
        self.marks: list[SimpleNamespace] = []

    def get_category_id(self, name: str) -> int:
        return 1 + GROUPS.index(name)

    def get_event_attributes(
        self, message: str, category: int = 0, payload: int | None = None
    ) -> SimpleNamespace:
        self.registered.append(message)
        return SimpleNamespace(message=message, category=category, payload=payload)

    def mark(self, attributes: SimpleNamespace) -> None:
        self.marks.append(attributes)

    def push_range(self, attributes: SimpleNamespace) -> None:
        self.calls.append(("push", told(attributes)))

    def pop_range(self) -> None:
        self.calls.append(("pop",))

    def start_range(self, attributes: SimpleNamespace) -> int:
        self.ranges += 1
        self.calls.append(("start", told(attributes), self.ranges))
        return self.ranges

    def end_range(self, number: int) -> None:
        self.calls.append(("end", number))


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
    nvtx = ModuleType("nvtx")
    nvtx.get_domain = {"slime": domain}.__getitem__  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    return domain


def test_nvtx_ranges_nest_outside_tasks(tmp_path: Path, domain: Domain) -> None:
    start(tmp_path, nvtx=True)
    for _ in range(2):
        with timeline.phase("train_step"), timeline.phase("forward"):
            pass
    stop(tmp_path)
    once = [("push", "<train_step:trainer>"), ("push", "<forward:trainer>"), ("pop",), ("pop",)]
    assert domain.calls == once + once
    assert domain.registered[1:] == ["train_step", "forward"]


def test_the_payload_is_the_rollout(tmp_path: Path, domain: Domain) -> None:
    start(tmp_path, nvtx=True)
    with timeline.phase("weight_sync"):
        pass
    for rollout in (0, 1):
        timeline.set_rollout(rollout)
        with timeline.phase("train_step"):
            pass
    with timeline.rollout(7):
        span = timeline.begin("generate")
        with timeline.phase("my_own"):
            pass
    with timeline.rollout(1 << 63), timeline.phase("reward"):
        pass
    span.end()
    stop(tmp_path)
    assert [call[1] for call in domain.calls if call[0] in ("push", "start")] == [
        "<weight_sync:sync>",
        "<train_step:trainer@0>",
        "<train_step:trainer@1>",
        "<generate:rollout@7>",
        "<my_own:user@7>",
        "<reward:rollout>",
    ]


def test_the_report_gets_our_clocks_at_the_start_and_with_rollouts(
    tmp_path: Path, domain: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_pair()
    start(tmp_path, nvtx=True)
    timeline.set_rollout(0)  # within a second of the first: no other mark
    monkeypatch.setattr(_nvtx, "_CLOCK_PERIOD_NS", 0)
    timeline.set_rollout(1)
    timeline.stop()
    after = read_pair()
    assert len(domain.marks) == 2
    for mark in domain.marks:
        said = re.fullmatch(r"slime\.clock unix_ns=(\d+) mono_ns=(\d+)", mark.message)
        assert said is not None
        unix_ns, mono_ns = map(int, said.groups())
        assert before.unix_ns <= unix_ns <= after.unix_ns
        assert before.mono_ns <= mono_ns <= mono_ns + mark.payload <= after.mono_ns


def test_nvtx_ranges_stand_free_inside_tasks_and_for_spans(tmp_path: Path, domain: Domain) -> None:
    async def sample(name: str) -> None:
        with timeline.phase(name):
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(sample("a"), sample("b"))

    start(tmp_path, nvtx=True)
    span = timeline.begin("weight_sync")
    asyncio.run(main())
    span.end()
    stop(tmp_path)
    assert domain.calls == [
        ("start", "<weight_sync:sync>", 1),
        ("start", "<a:user>", 2),
        ("start", "<b:user>", 3),
        ("end", 2),
        ("end", 3),
        ("end", 1),
    ]


def test_made_up_names_do_not_register_for_ever() -> None:
    domain = Domain()
    ranges = NvtxRanges(domain)
    for n in range(MOST_NAMES + 10):
        ranges.push(ranges.attributes[0][f"n{n}"])
    assert len(domain.registered) == MOST_NAMES + 1
    assert domain.calls[-1] == ("push", "<other:user@0>")


def test_only_the_last_rollouts_keep_their_attributes() -> None:
    domain = Domain()
    ranges = NvtxRanges(domain)
    for rollout in range(100):
        for name in ("a", "b"):
            ranges.push(ranges.attributes[rollout][name])
    assert len(ranges.attributes) == MOST_ROLLOUTS
    assert domain.calls[-1] == ("push", "<b:user@99>")
    ranges.push(ranges.attributes[3]["a"])
    assert domain.calls[-1] == ("push", "<a:user@3>")


def test_a_tool_that_nvtx_does_not_see_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class DummyDomain(Domain):
        pass

    nvtx = ModuleType("nvtx")
    nvtx.get_domain = lambda _name: DummyDomain()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/opt/tool/libInjection64.so")
    start(tmp_path, nvtx=True)
    with timeline.phase("x"):
        pass
    (drop,) = stop(tmp_path).drops
    assert (drop.what, drop.count) == ("nvtx", 1)
    assert drop.reason.startswith("ToolUnseenError: NVTX_INJECTION64_PATH says that a tool wants NVTX ranges")
    assert len(caplog.records) == 1
    assert "nvtx is off from now on" in caplog.text


def test_without_a_tool_there_are_no_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class DummyDomain(Domain):
        pass

    dummy = DummyDomain()
    nvtx = ModuleType("nvtx")
    nvtx.get_domain = lambda _name: dummy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    start(tmp_path, nvtx=True)
    with timeline.phase("x"):
        pass
    assert not stop(tmp_path).drops
    assert dummy.calls == []


@pytest.mark.parametrize("fails", ["push_range", "pop_range", "get_event_attributes"])
def test_nvtx_that_raises_is_off_from_then_on(
    tmp_path: Path,
    domain: Domain,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fails: str,
) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError(f"{fails} failed")

    monkeypatch.setattr(domain, fails, fail)
    start(tmp_path, nvtx=True)
    with timeline.phase("a"), timeline.phase("b"):
        pass
    with timeline.phase("c"):
        pass
    got = stop(tmp_path)
    assert got.parent_names() == {"a": None, "b": "a", "c": None}
    assert [(d.what, d.reason, d.count) for d in got.drops] == [("nvtx", f"RuntimeError: {fails} failed", 1)]
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert ("push", "<c:user>") not in domain.calls


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
