"""What a process past its budget still writes."""

from __future__ import annotations

import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from recordings import read_recording

from slime_profiler_plugin import schema, timeline
from slime_profiler_plugin.record._budget import Budget

LIMIT = 32_000


def record(budget: Budget, name: str, dur_ns: int, times: int) -> int:
    return sum(budget.admits(name, dur_ns) for _ in range(times))


def test_everything_is_written_up_to_the_budget() -> None:
    budget = Budget(LIMIT)
    assert record(budget, "forward", 10, 1000) == 1000
    budget.spent(LIMIT - 1)
    assert record(budget, "forward", 10, 1000) == 1000


def test_short_and_frequent_names_go_first_and_long_ones_last() -> None:
    budget = Budget(LIMIT)
    durations = {"mark": 0, "tick": 10, "forward": 1_000, "train_step": 1_000_000, "weight_sync": 50_000_000}
    times = {"mark": 5, "tick": 1000, "forward": 100, "train_step": 10, "weight_sync": 1}
    still = []
    for size in (LIMIT, LIMIT + 1000, LIMIT + 2000, LIMIT + 3000):
        for name, dur in durations.items():
            record(budget, name, dur, times[name])
        budget.spent(size)
        still.append([name for name, dur in durations.items() if budget.admits(name, dur)])
    assert still == [
        ["forward", "train_step", "weight_sync"],
        ["train_step", "weight_sync"],
        ["weight_sync"],
        [],
    ]


def test_at_a_quarter_over_everything_is_muted() -> None:
    budget = Budget(LIMIT)
    names = (f"n{i}" for i in itertools.count())
    for step in range(8):
        budget.spent(LIMIT + step * LIMIT // 32)
        assert budget.admits(next(names), 1), step
    budget.spent(LIMIT + LIMIT // 4)
    assert not budget.admits(next(names), 1)


def test_a_jump_over_several_steps_mutes_once() -> None:
    budget = Budget(LIMIT)
    for name, dur in (("a", 1), ("b", 2), ("c", 3)):
        record(budget, name, dur, 8)
    budget.spent(LIMIT + LIMIT // 8)
    assert [budget.admits(name, 1) for name in "abc"] == [False, False, True]
    budget.spent(LIMIT + LIMIT // 8 + 10)
    assert budget.admits("c", 1)


@given(
    times=st.lists(st.integers(1, 200), min_size=1, max_size=8),
    durations=st.lists(st.integers(0, 10**9), min_size=8, max_size=8),
)
def test_each_step_mutes_at_least_half_and_never_a_longer_before_a_shorter(
    times: list[int], durations: list[int]
) -> None:
    budget = Budget(LIMIT)
    for i, n in enumerate(times):
        record(budget, f"n{i}", durations[i], n)
    budget.spent(LIMIT)
    muted = [not budget.admits(f"n{i}", durations[i]) for i in range(len(times))]
    assert sum(n for n, gone in zip(times, muted, strict=True) if gone) * 2 >= sum(times)
    kept = [durations[i] for i, gone in enumerate(muted) if not gone]
    gone_too = [durations[i] for i, gone in enumerate(muted) if gone]
    assert not kept or max(gone_too) <= min(kept)


def test_in_a_recording(tmp_path: Path) -> None:
    """Frequent phases stop, the rare long one goes on, and every loss is counted."""
    records = {"budget_bytes": 640_000, "flush_bytes": 4_000, "period_s": 3600}
    assert timeline.start(
        {"out": str(tmp_path), "outputs": {"nvtx": False}, "records": records}, run_id="run"
    )
    rounds = 40
    for _ in range(rounds):
        with timeline.phase("train_step"):
            for _ in range(100):
                with timeline.phase("forward"):
                    pass
                timeline.mark("sample")
        timeline.flush()
    timeline.stop()
    got = read_recording(tmp_path)
    assert len([p for p in got.phases if p.name == "train_step"]) == rounds
    written = {"phase": len(got.phases) - rounds, "mark": len(got.all(schema.Mark))}
    lost = {what: sum(d.count for d in got.drops if d.what == what) for what in ("phase", "mark")}
    assert {what: written[what] + lost[what] for what in lost} == {
        "phase": 100 * rounds,
        "mark": 100 * rounds,
    }
    assert lost["mark"] > 0
    assert {d.reason for d in got.drops} == {"budget"}
    assert sum(path.stat().st_size for path in tmp_path.glob("*/records/*/*")) < 800_000
    got.check_counts()
