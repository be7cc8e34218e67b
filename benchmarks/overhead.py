"""What recording costs the demo's loop: real training and weight syncs in gloo processes, without Ray.

Neighbouring rollouts of one loop are compared, with recording and without, in random order: what else
the machine does hits both alike. Pairs in which nothing is recorded show what this cannot see; clocks
around the calls, and of the writers' threads, see more. Run as ``python benchmarks/overhead.py
[pairs]``. The exit status is 1 only when records were dropped, or a record file has no end.
"""

from __future__ import annotations

import gzip
import math
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from _demo_rollouts import DemoRollouts, Times
from _pairs import Summary, relative, summarize
from _records import count_phases

from slime_profiler_plugin.config import Config, load_config
from slime_profiler_plugin.demo import Settings

AIM = 0.01
PAIRS = 240
WARM_UP = 5
#: Rollouts that are compared after a window.
LATER = 3
#: Pairs of the first part for each of a rollout that is watched, and of a window.
PAIRS_PER_WATCHED = 3
PAIRS_PER_WINDOW = 12

A = TypeVar("A")
T = TypeVar("T")
Pairs = list[tuple[Times, Times]]


class Timeline(NamedTuple):
    """What the first part measured. Pairs are (with, without)."""

    null: Pairs
    recorded: Pairs
    #: Seconds of CPU per rollout in the calls, recording and not.
    in_calls: list[tuple[float, float]]
    #: Seconds of CPU of the writers' threads, in `watched` rollouts.
    writers_cpu: float
    watched: int


class Windows(NamedTuple):
    """What the second part measured: (with a window, with the timeline only), and the exports."""

    warm_up: Pairs
    recorded: Pairs
    export: list[Times]
    later: Pairs


def main() -> int:
    """Measure and print; see the module's text for the exit status."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    for name in [name for name in os.environ if name.startswith("SLIME_")]:
        del os.environ[name]  # what is recorded is decided here
    os.environ["OMP_NUM_THREADS"] = "1"
    settings = Settings()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        print(f"{settings.trainers} trainers, {settings.engines} engines, {os.cpu_count()} cores, {load()}")
        with DemoRollouts(settings, shipped("timeline", out / "first")) as demo:
            for _ in range(WARM_UP):
                demo.run()
            timeline = measure_timeline(demo, out, pairs)
            windows = measure_windows(demo, out, max(2, pairs // PAIRS_PER_WINDOW))
        print_timeline(timeline, sum(count_phases(out / "writers")[0].values()))
        traces = out.glob("windows/*/traces/*/*.gz")
        print_windows(windows, [len(gzip.decompress(trace.read_bytes())) for trace in traces])
        print(f"\n{load()}")
        lost = [part.name for part in sorted(out.iterdir()) if any(count_phases(part)[1:])]
    for part in lost:
        print(f"the part {part} does not count: records were dropped, or a record file has no end")
    return 1 if lost else 0


def load() -> str:
    """How busy the machine was in the last minute."""
    return f"load {os.getloadavg()[0]:.1f}"


def shipped(name: str, out: Path) -> Config:
    """A shipped configuration that writes below `out`."""
    return msgspec.structs.replace(load_config(name, {}) or Config(), out=str(out))


def measure_timeline(demo: DemoRollouts, out: Path, pairs: int) -> Timeline:
    """Compare single rollouts, within one recording, then watch the writers in another."""
    chance = random.Random(0)
    config = shipped("timeline", out / "timeline")
    # The writers have no turn of their own, which could fall into either rollout of a pair.
    quiet = msgspec.structs.replace(config.records, period_s=3600, flush_bytes=config.records.segment_bytes)
    demo.start(msgspec.structs.replace(config, records=quiet))

    def run(recording: bool) -> Times:
        demo.switch(recording=recording)
        return demo.run()

    def clocked(recording: bool) -> float:
        demo.switch(recording=recording, timed=True)
        demo.run()
        return demo.in_calls()

    null: Pairs = []
    recorded: Pairs = []
    in_calls: list[tuple[float, float]] = []
    parts: list[Callable[[], None]] = [
        *[lambda: null.append(in_random_order(chance, run, False, False))] * max(1, pairs // 2),
        *[lambda: recorded.append(in_random_order(chance, run, True, False))] * pairs,
        *[lambda: in_calls.append(in_random_order(chance, clocked, True, False))] * max(1, pairs // 4),
    ]
    chance.shuffle(parts)
    for part in parts:
        part()
    demo.stop()
    demo.start(shipped("timeline", out / "writers"))
    watched = max(10, pairs // PAIRS_PER_WATCHED)
    for _ in range(watched):
        demo.run()
    writers_cpu = demo.writers_cpu()
    demo.stop()
    return Timeline(null, recorded, in_calls, writers_cpu, watched)


def measure_windows(demo: DemoRollouts, out: Path, count: int) -> Windows:
    """Compare short recordings that have a window with ones that have none."""
    chance = random.Random(0)
    windows = Windows([], [], [], [])

    def record(name: str) -> tuple[list[Times], Times]:
        demo.start(shipped(name, out / "windows"))
        rollouts = [demo.run(), demo.run()]
        export = demo.export()
        rollouts += [demo.run() for _ in range(LATER)]
        demo.stop()
        return rollouts, export

    for _ in range(count):
        (with_, export), (without, _) = in_random_order(chance, record, "kernels", "timeline")
        windows.warm_up.append((with_[0], without[0]))
        windows.recorded.append((with_[1], without[1]))
        windows.export.append(export)
        windows.later.append((add(with_[2:]), add(without[2:])))
    return windows


def in_random_order(chance: random.Random, run: Callable[[A], T], with_: A, without: A) -> tuple[T, T]:
    """What `run` returns for either; which is first is left to chance."""
    if chance.random() < 0.5:
        first = run(with_)
        return first, run(without)
    second = run(without)
    return run(with_), second


def add(times: Iterable[Times]) -> Times:
    """All of them together."""
    return Times(*map(sum, zip(*times, strict=True)))


def summary_of(pairs: Pairs, clock: str) -> Summary:
    """How much more of `wall` or `cpu` the rollouts with it take, relative to those without."""
    return summarize(relative((getattr(with_, clock), getattr(without, clock)) for with_, without in pairs))


def print_timeline(measured: Timeline, written: int) -> None:
    """The first part's table and its verdict; `written`: phases of the rollouts that were watched."""
    plain = [without for pairs in (measured.null, measured.recorded) for _, without in pairs]
    wall, cpu = (statistics.median(getattr(times, clock) for times in plain) for clock in Times._fields)
    phases = written / measured.watched
    print(f"a rollout and its sync: {wall * 1e3:.1f} ms, {cpu * 1e3:.1f} ms of CPU, {phases:.0f} phases\n")
    print_header("against a rollout with nothing recorded")
    print_pairs("nothing (what cannot be seen)", measured.null)
    print_pairs("timeline, before it is written", measured.recorded)
    in_calls = summarize((on - off) / cpu for on, off in measured.in_calls)
    writers = measured.writers_cpu / measured.watched / cpu
    cost = in_calls.shifted(writers)
    a_phase = cpu / phases * 1e6
    print("\nby clocks of the threads themselves: share of the CPU, and us for each phase")
    print(f"  {'in the calls':34}{percent(in_calls)}{in_calls.median * a_phase:8.1f} us")
    print(f"  {'writers, in the background':34}{writers:+8.2%}{'':22}{writers * a_phase:8.1f} us")
    print(f"  {'both':34}{percent(cost)}{cost.median * a_phase:8.1f} us")
    print(f"verdict: recording costs {percent(cost).strip()} of CPU, {verdict(cost)}\n")


def verdict(cost: Summary) -> str:
    """What an interval says about the aim."""
    aim = f"the aim of {AIM:.0%}"
    if cost.high <= AIM:
        return f"within {aim}"
    if cost.low > AIM:
        return f"above {aim}"
    return f"whether within {aim} is open, more pairs narrow the interval"


def print_windows(measured: Windows, trace_bytes: list[int]) -> None:
    """The second part's table, and the first window of the process by itself: it sets the profiler up."""
    size = max(trace_bytes, default=0) / 1e6
    print_header(f"with a window in rank 0 (trace {size:.1f} MB), against the timeline only")
    print_pairs("rollout of the warm-up", measured.warm_up[1:])
    print_pairs("recorded rollout", measured.recorded[1:])
    alone = [without for _, without in measured.recorded]
    print_pairs(
        "export, beside a rollout",
        [(add(pair), pair[1]) for pair in zip(measured.export, alone, strict=True)][1:],
    )
    print_pairs(f"the {LATER} rollouts after it", measured.later[1:])
    firsts = (measured.warm_up[0][0], measured.recorded[0][0], measured.export[0])
    print("the first window of the process, which sets the profiler up:")
    for name, times in zip(("warm-up", "recorded", "export"), firsts, strict=True):
        print(f"  {name:10}{times.wall * 1e3:8.0f} ms {times.cpu * 1e3:8.0f} ms of CPU")
    exports = [times.wall for times in measured.export[1:]]
    print(f"later exports: {statistics.median(exports) * 1e3:.0f} ms")


def print_header(title: str) -> None:
    """Of a table of pairs."""
    columns = f"{'wall, 95 % interval':>30}{'spread':>8}{'CPU, 95 % interval':>31}{'spread':>8}{'pairs':>7}"
    print(f"{title}\n  {'':34}{columns}")


def print_pairs(name: str, pairs: Pairs) -> None:
    """One row."""
    wall, cpu = (summary_of(pairs, clock) for clock in Times._fields)
    print(f"  {name:34}{percent(wall)}{wall.spread:8.1%} {percent(cpu)}{cpu.spread:8.1%}{wall.pairs:7}")


def percent(summary: Summary) -> str:
    """Median and interval, 30 wide."""
    if math.isinf(summary.high):
        return f"{summary.median:+8.2%} {'(too few pairs)':21}"
    return f"{summary.median:+8.2%} ({summary.low:+7.2%} to {summary.high:+7.2%})"


if __name__ == "__main__":
    sys.exit(main())
