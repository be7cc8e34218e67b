"""NVTX ranges of phases, and the marks of our clocks among them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from pathlib import Path

import pytest
from nvtx_domain import GROUPS, Domain, DummyDomain, hand_out
from recordings import stop

from slime_profiler_plugin import phases, timeline
from slime_profiler_plugin.clock import read_pair
from slime_profiler_plugin.record import _nvtx
from slime_profiler_plugin.record._nvtx import MOST_NAMES, MOST_ROLLOUTS, NvtxRanges


def start(out: Path) -> None:
    chosen = {"nvtx": True, "record_function": False, "device_events": False}
    assert timeline.start({"out": str(out), "outputs": chosen}, run_id="run", role="actor", rank=0)


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> Domain:
    """The domain that the nvtx package will hand out."""
    domain = Domain()
    hand_out(monkeypatch, domain)
    return domain


def test_nvtx_ranges_nest_outside_tasks(tmp_path: Path, domain: Domain) -> None:
    start(tmp_path)
    for _ in range(2):
        with timeline.phase("train_step"), timeline.phase("forward"):
            pass
    stop(tmp_path)
    once = [("push", "<train_step:trainer>"), ("push", "<forward:trainer>"), ("pop",), ("pop",)]
    assert domain.calls == once + once
    assert domain.registered[1:] == ["train_step", "forward"]


def test_the_payload_is_the_rollout(tmp_path: Path, domain: Domain) -> None:
    start(tmp_path)
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
    start(tmp_path)
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

    start(tmp_path)
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
    hand_out(monkeypatch, DummyDomain())
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/opt/tool/libInjection64.so")
    start(tmp_path)
    with timeline.phase("x"):
        pass
    (drop,) = stop(tmp_path).drops
    assert (drop.what, drop.count) == ("nvtx", 1)
    assert drop.reason.startswith("ToolUnseenError: NVTX_INJECTION64_PATH says that a tool wants NVTX ranges")
    assert len(caplog.records) == 1
    assert "nvtx is off from now on" in caplog.text


def test_without_a_tool_there_are_no_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dummy = DummyDomain()
    hand_out(monkeypatch, dummy)
    start(tmp_path)
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
    start(tmp_path)
    with timeline.phase("a"), timeline.phase("b"):
        pass
    with timeline.phase("c"):
        pass
    got = stop(tmp_path)
    assert got.parent_names() == {"a": None, "b": "a", "c": None}
    assert [(d.what, d.reason, d.count) for d in got.drops] == [("nvtx", f"RuntimeError: {fails} failed", 1)]
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert ("push", "<c:user>") not in domain.calls


def test_every_phase_belongs_to_a_part_of_the_loop() -> None:
    groups = defaultdict(set)
    for name in phases.BUILT_IN:
        groups[phases.phase_group(name)].add(name)
    assert set(groups) == set(GROUPS) - {"user"}
    assert {"train_step", "grad_sync", "sleep", "profiler_export"} <= groups["trainer"]
    assert {"weight_sync", "connect_engines", "bucket_ack", "barrier", "delta_publish"} <= groups["sync"]
    engine = {"engine_receive", "engine_load", "engine_pull", "engine_flush", "engine_request"}
    assert groups["engine"] == engine
    assert {"generate", "eval", "reward", "convert_samples", "onload_kv"} <= groups["rollout"]
    assert phases.phase_group("my_own") == "user"


def test_forked_child_of_a_watched_process_leaves_nvtx_alone(monkeypatch):
    monkeypatch.setattr(_nvtx, "IMPORTED_IN", -1)
    monkeypatch.setattr(_nvtx.importlib, "import_module", lambda _name: pytest.fail("nvtx was imported"))
    with pytest.raises(_nvtx.ToolUnseenError, match="forked"):
        _nvtx.open_nvtx({"NVTX_INJECTION64_PATH": "/tool.so"})
