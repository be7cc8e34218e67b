"""The arithmetic of the benchmarks, on numbers whose answer is known, and that they run at all."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from _demo_rollouts import Times
from _pairs import LEAST, Summary, relative, summarize
from overhead import add, in_random_order, percent, summary_of, verdict

ROOT = Path(__file__).resolve().parents[2]


def run(name: str, *arguments: str) -> str:
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("SLIME_", "RAY_"))}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / name), *arguments],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# The ranks are those of the tables of the sign test.
@pytest.mark.parametrize(("n", "low"), [(6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (50, 18), (100, 40)])
def test_the_interval_of_the_median_is_that_of_the_sign_test(n, low):
    values = list(range(1, n + 1))
    random.Random(n).shuffle(values)
    summary = summarize(values)
    assert (summary.median, summary.low, summary.high) == ((n + 1) / 2, low, n + 1 - low)
    assert summary.pairs == n


@pytest.mark.parametrize("n", range(1, LEAST))
def test_few_pairs_have_no_interval(n):
    summary = summarize([3.0] * n)
    assert (summary.median, summary.low, summary.high) == (3.0, -math.inf, math.inf)
    assert percent(summary).split() == ["+300.00%", "(too", "few", "pairs)"]


def test_the_spread_is_the_distance_of_the_quartiles():
    assert summarize(range(1, 8)).spread == 4


def test_what_drifts_is_not_taken_for_a_cost():
    chance = random.Random(0)
    pairs = []
    for number in range(400):
        machine = 1 + number / 100  # five times slower at the end
        with_, without = (machine * factor * chance.uniform(0.95, 1.05) for factor in (1.02, 1.0))
        pairs.append((with_, without))
    summary = summarize(relative(pairs))
    assert summary.low < 0.02 < summary.high
    assert 0.01 < summary.low < summary.high < 0.03


def test_pairs_are_compared_by_each_clock():
    pairs = [(Times(wall=3.0, cpu=1.1), Times(wall=2.0, cpu=1.0))] * LEAST
    wall, cpu = (summary_of(pairs, clock).scaled(1 / 10) for clock in ("wall", "cpu"))
    assert wall == Summary(0.05, 0.05, 0.05, 0.0, LEAST)
    assert cpu.median == pytest.approx(0.01)
    assert wall.shifted(0.25) == Summary(0.3, 0.3, 0.3, 0.0, LEAST)
    assert add([Times(1.0, 2.0), Times(3.0, 5.0)]) == Times(4.0, 7.0)


def test_either_comes_first_and_the_results_stand_where_they_belong():
    chance = random.Random(0)
    order: list[str] = []

    def measured(what: str) -> str:
        order.append(what)
        return what

    results = {in_random_order(chance, measured, "with", "without") for _ in range(50)}
    assert results == {("with", "without")}
    assert set(order[::2]) == {"with", "without"}


@pytest.mark.parametrize(
    ("low", "high", "says"), [(0.002, 0.008, "within"), (0.008, 0.02, "open"), (0.011, 0.02, "above")]
)
def test_the_verdict_is_as_sure_as_the_interval(low, high, says):
    assert says in verdict(Summary((low + high) / 2, low, high, 0.0, 100)).replace("whether within", "")


def test_the_benchmark_of_a_span_runs():
    pytest.importorskip("torch")
    assert " 0 dropped" in run("span.py", "1")


def test_the_benchmark_of_the_loop_runs():
    pytest.importorskip("torch")
    printed = run("overhead.py", "1")
    rows = [line.split("  ")[1] for line in printed.splitlines() if line.startswith("  ")]
    for row in (
        "nothing (what cannot be seen)",
        "timeline, before it is written",
        "in the calls",
        "recorded rollout",
    ):
        assert row in rows
    assert "dropped" not in printed
    assert "verdict: recording costs" in printed
