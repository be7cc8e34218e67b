"""Which weight syncs make the driver ask for a window, and of which rollout."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import ROOT, stop

from slime_profiler_plugin import schema, timeline
from slime_profiler_plugin.config import Trigger, load_config
from slime_profiler_plugin.record import _slow_syncs
from slime_profiler_plugin.record._slow_syncs import SyncTimes, choose_rollout

SECOND = 10**9


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=200), st.integers(1, 10**7))
def test_95_of_100_are_not_longer_than_the_percentile(before: list[int], took: int) -> None:
    times = SyncTimes(Trigger(sync_over_p95=1.5, min_syncs=1))
    for each in before:
        times.judge(each)
    p95 = times.judge(took)
    # By its definition: the least of the times that at least 95 % of them do not exceed.
    least = min(t for t in before if sum(other <= t for other in before) >= math.ceil(0.95 * len(before)))
    assert p95 == (least if took > 1.5 * least else None)


def test_none_is_judged_before_enough_are_known() -> None:
    times = SyncTimes(Trigger(min_syncs=3))
    assert [times.judge(took) for took in (1, 1, 100, 100, 1000)] == [None, None, None, None, 100]


def test_old_times_are_forgotten() -> None:
    times = SyncTimes(Trigger(min_syncs=1))
    for _ in range(200):
        times.judge(100)
    for _ in range(200):
        times.judge(10)
    assert times.judge(16) == 10


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 7])
def test_a_sync_follows_the_chosen_rollout(step: int) -> None:
    chosen = choose_rollout(20, 20 - step)
    assert chosen >= 22
    assert (chosen - 20) % step == 0


def test_a_run_that_goes_back_does_not_ask_for_the_past() -> None:
    assert choose_rollout(5, 9) == 8
    assert choose_rollout(5, 5) == 8


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Monotonic ns, as the watch sees it."""
    now = [0]
    monkeypatch.setattr(_slow_syncs, "monotonic_ns", lambda: now[0])
    return now


def start(out: Path, **trigger: float) -> None:
    profiler = {"schedule": None, "trigger": {"min_syncs": 3, **trigger}}
    settings = {"out": str(out), "outputs": {"nvtx": False}, "profiler": profiler}
    assert timeline.start(settings, run_id="run", role="driver", rank=0)


def sync(clock: list[int], seconds: float) -> None:
    with timeline.watch_sync():
        clock[0] += round(seconds * SECOND)


def fail_sync(clock: list[int], seconds: int) -> None:
    with timeline.watch_sync():
        clock[0] += seconds * SECOND
        raise OSError("lost")


def run_syncs(clock: list[int], *seconds: float, first: int = 0, step: int = 1) -> None:
    for turn, each in enumerate(seconds):
        timeline.set_rollout(first + turn * step)
        sync(clock, each)


def asked(out: Path) -> list[dict[str, int]]:
    timeline.flush()
    files = sorted((out / "run" / "trigger").glob("*")) if (out / "run" / "trigger").exists() else []
    assert [file.name for file in files] == [f"attempt-000.{n:03d}.json" for n in range(len(files))]
    return [json.loads(file.read_bytes()) for file in files]


def test_a_slow_sync_asks_for_a_window(tmp_path: Path, clock: list[int]) -> None:
    start(tmp_path)
    run_syncs(clock, 10, 12, 10, 18, 28)
    (request,) = asked(tmp_path)
    assert request.pop("at_unix_ns") > 1.7e18
    assert request == {
        "rollout": 7,
        "asked_in": 4,
        "took_ns": 28 * SECOND,
        "p95_ns": 18 * SECOND,
        "syncs": 4,
    }
    got = stop(tmp_path)
    (mark,) = got.all(schema.Mark)
    assert (mark.name, mark.rollout) == ("slow_sync", 4)
    assert mark.attrs == {"took_ns": 28 * SECOND, "p95_ns": 18 * SECOND, "window": 7}
    assert got.drops == []


def test_the_first_sync_is_not_judged_nor_kept(tmp_path: Path, clock: list[int]) -> None:
    start(tmp_path)
    sync(clock, 1000)
    run_syncs(clock, 10, 10, 10, 16)
    assert [request["asked_in"] for request in asked(tmp_path)] == [3]
    timeline.stop()


def test_one_window_at_a_time_and_no_more_than_allowed(tmp_path: Path, clock: list[int]) -> None:
    start(tmp_path, windows=2)
    # The fourth asks; of the next two windows one is enough; then comes its own rollout.
    run_syncs(clock, 1, 1, 1, 2, 4, 8, 1000, 16, 1, 1, 1, 100, 1000)
    assert [(r["asked_in"], r["rollout"]) for r in asked(tmp_path)] == [(3, 6), (7, 10)]
    timeline.set_rollout(13)
    sync(clock, 10**5)
    assert len(asked(tmp_path)) == 2
    timeline.stop()


def test_a_sync_in_the_windows_own_rollout_is_not_kept(tmp_path: Path, clock: list[int]) -> None:
    start(tmp_path)
    run_syncs(clock, 10, 10, 10, 16, 16, 16, 10**6, 25)
    assert [(r["asked_in"], r["p95_ns"]) for r in asked(tmp_path)] == [(3, 10 * SECOND), (7, 16 * SECOND)]
    timeline.stop()


def test_a_sync_that_fails_is_not_judged(tmp_path: Path, clock: list[int]) -> None:
    start(tmp_path)
    run_syncs(clock, 10, 10, 10)
    with pytest.raises(OSError, match="lost"):
        fail_sync(clock, 100)
    assert asked(tmp_path) == []
    timeline.stop()


def test_syncs_every_few_rollouts(tmp_path: Path, clock: list[int]) -> None:
    start(tmp_path)
    run_syncs(clock, 10, 10, 10, 20, first=1, step=2)
    assert [(r["asked_in"], r["rollout"]) for r in asked(tmp_path)] == [(7, 11)]
    timeline.stop()


def test_a_folder_that_cannot_be_written_is_told_once(
    tmp_path: Path, clock: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    start(tmp_path)
    timeline.mark("here")
    timeline.flush()
    (tmp_path / "run" / "trigger").write_text("a file in the way")
    run_syncs(clock, 10, 10, 10, 20, 10, 10, 10, 40)
    timeline.flush()
    assert [r.getMessage().partition(":")[0] for r in caplog.records] == ["slime_profiler_plugin"]
    assert "trigger failed: FileExistsError" in caplog.text
    got = stop(tmp_path)
    assert [(drop.what, drop.count) for drop in got.drops] == [("trigger", 1)]
    assert len(got.all(schema.Mark)) == 3


def test_without_a_trigger_nothing_is_watched(tmp_path: Path, clock: list[int]) -> None:
    with timeline.watch_sync():
        pass
    profiler = {"schedule": None}
    assert timeline.start(
        {"out": str(tmp_path), "profiler": profiler, "outputs": {"nvtx": False}}, run_id="run"
    )
    run_syncs(clock, 10, 10, 10, 10**6)
    timeline.mark("here")
    assert [mark.name for mark in stop(tmp_path).all(schema.Mark)] == ["here"]
    assert not (tmp_path / "run" / "trigger").exists()


PAGE = (ROOT / "docs" / "slow-syncs.md").read_text()


def test_the_examples_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    file = tmp_path / "config.yaml"
    file.write_text(text)
    config = load_config(file, {})
    assert config is not None
    assert config.profiler is not None
    # What it shows of the trigger is the default.
    assert (config.profiler.schedule, config.profiler.trigger) == (None, Trigger())
    file.write_text(text.replace("min_syncs: 20", "min_syncs: 1").replace("1.5 ", "1 "))
    monkeypatch.setenv("SLIME_PROFILER", str(file))
    monkeypatch.setenv("SLIME_PROFILER_OUT", str(tmp_path))
    monkeypatch.setenv("SLIME_PROFILER_RUN_ID", "run")
    ticks = itertools.accumulate(range(10, 1000))  # each sync takes longer
    monkeypatch.setattr(_slow_syncs, "monotonic_ns", lambda: next(ticks))
    exec(program, {})
    assert [(r["asked_in"], r["rollout"]) for r in asked(tmp_path)] == [(1, 4)]
    timeline.stop()
