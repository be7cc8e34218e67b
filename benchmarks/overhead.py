"""What recording costs the demo's loop: real training and weight syncs in gloo processes, without Ray.

Neighbouring rollouts of one loop are compared, with recording and without, in random order: what else
the machine does hits both alike. Pairs in which nothing is recorded show what this cannot see. Run as
``python benchmarks/overhead.py [pairs]``. The exit status is 1 only when a record was dropped.
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
PAIRS = 300
#: One record costs too little to be seen beside what rollouts vary by, so many for each phase do not.
#: It is also about how many rollouts pass between two turns of the writer, so that records of this
#: many and one turn are what that many rollouts cost.
REPEATED = 16
WARM_UP = 5
#: Rollouts that are compared after a window.
LATER = 3
#: Pairs of the first part for each of a rollout that is watched, and of a window.
PAIRS_PER_WATCHED = 3
PAIRS_PER_WINDOW = 25

A = TypeVar("A")
T = TypeVar("T")
Pairs = list[tuple[Times, Times]]


class Timeline(NamedTuple):
    """What the first part measured. Pairs are (with, without)."""

    null: Pairs
    once: Pairs
    repeated: Pairs
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
        print(f"records were dropped in the part {part}: it does not count")
    return 1 if lost else 0


def load() -> str:
    """How busy the machine was in the last minute."""
    return f"load {os.getloadavg()[0]:.1f}"


def shipped(name: str, out: Path) -> Config:
    """A shipped configuration that writes below `out`."""
    return msgspec.structs.replace(load_config(name, {}) or Config(), out=str(out))


def measure_timeline(demo: DemoRollouts, out: Path, pairs: int) -> Timeline:
    """Compare single rollouts, within one recording, then watch the writers in another."""
    kinds = [0] * max(1, pairs // 2) + [1] * pairs + [REPEATED] * max(1, pairs // 2)
    chance = random.Random(0)
    chance.shuffle(kinds)
    compared: dict[int, Pairs] = {0: [], 1: [], REPEATED: []}
    config = shipped("timeline", out / "timeline")
    # The writers have no turn of their own, which could fall into either rollout of a pair.
    quiet = msgspec.structs.replace(config.records, period_s=3600, flush_bytes=config.records.segment_bytes)
    demo.start(msgspec.structs.replace(config, records=quiet))

    def run(times: int) -> Times:
        demo.switch(times)
        return demo.run(write=times == REPEATED)

    for times in kinds:
        compared[times].append(in_random_order(chance, run, times, 0))
    demo.stop()
    demo.start(shipped("timeline", out / "writers"))
    watched = max(10, pairs // PAIRS_PER_WATCHED)
    for _ in range(watched):
        demo.run()
    writers_cpu = demo.writers_cpu()
    demo.stop()
    return Timeline(compared[0], compared[1], compared[REPEATED], writers_cpu, watched)


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
    plain = [without for pairs in measured[:3] for _, without in pairs]
    wall, cpu = (statistics.median(getattr(times, clock) for times in plain) for clock in Times._fields)
    phases = written / measured.watched
    print(f"a rollout and its sync: {wall * 1e3:.1f} ms, {cpu * 1e3:.1f} ms of CPU, {phases:.0f} phases\n")
    print_header("against a rollout with nothing recorded")
    print_pairs("nothing (what cannot be seen)", measured.null)
    print_pairs("timeline, before it is written", measured.once)
    print_pairs(f"each phase {REPEATED} times, and written", measured.repeated)
    wall_share, cpu_share = (
        summary_of(measured.repeated, clock).scaled(1 / REPEATED) for clock in Times._fields
    )
    print(f"\none rollout's share of the last row\n  wall {percent(wall_share)}\n  CPU  {percent(cpu_share)}")
    a_phase = cpu_share.scaled(cpu / phases * 1e6)
    print(f"  a phase: {a_phase.median:.1f} us of CPU ({a_phase.low:.1f} to {a_phase.high:.1f})")
    print(
        f"  of it, by their own clocks, the writers' threads: {measured.writers_cpu / written * 1e6:.1f} us"
    )
    print(f"verdict: recording costs {percent(cpu_share)} of CPU, {verdict(cpu_share)}\n")


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
    print_header(
        f"with a window in rank 0 (trace {max(trace_bytes, default=0) / 1e6:.1f} MB), against the timeline only"
    )
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
    columns = f"{'wall, 95 % interval':>28}{'spread':>8}{'CPU, 95 % interval':>29}{'spread':>8}{'pairs':>7}"
    print(f"{title}\n  {'':34}{columns}")


def print_pairs(name: str, pairs: Pairs) -> None:
    """One row."""
    wall, cpu = (summary_of(pairs, clock) for clock in Times._fields)
    print(f"  {name:34}{percent(wall)}{wall.spread:8.1%} {percent(cpu)}{cpu.spread:8.1%}{wall.pairs:7}")


def percent(summary: Summary) -> str:
    """Median and interval, 27 wide."""
    if math.isinf(summary.high):
        return f"{summary.median:+7.2%} {'(too few pairs)':>19}"
    return f"{summary.median:+7.2%} ({summary.low:+7.2%} to {summary.high:+7.2%})"


if __name__ == "__main__":
    sys.exit(main())
