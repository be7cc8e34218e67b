"""What tables cost: making the cache, and each view with it, beside pandas reading the same files.

``python benchmarks/report.py [--rollouts 100] [--ranks 64] [--records 300]``; ``--small`` is a quick look.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.testing import ProcessFile

MS = 1_000_000
_RUN = "large"
_VIEW = """
import json, resource, sys, time
from slime_profiler_plugin.analyze import RunTables
begun = time.perf_counter()
with RunTables(sys.argv[1]) as tables:
    table = tables.view(sys.argv[2])
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([time.perf_counter() - begun, used.ru_utime + used.ru_stime, len(table.rows),
    used.ru_maxrss * 1024, str(tables.cache)]))
"""
_PANDAS = """
import json, resource, sys, time
from pathlib import Path
import pandas
begun = time.perf_counter()
frames = [pandas.read_json(path, lines=True) for path in sorted(Path(sys.argv[1]).glob("records/*/*"))]
frame = pandas.concat(frames)
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([time.perf_counter() - begun, used.ru_utime + used.ru_stime, len(frame),
    used.ru_maxrss * 1024, ""]))
"""


class Cost(NamedTuple):
    """`wall_s` of the work; `cpu_s` and most memory of the whole process, imports too."""

    wall_s: float
    cpu_s: float
    rows: int
    peak: int
    told: str

    def __str__(self) -> str:
        return f"{self.wall_s:6.2f} s  {self.cpu_s:6.2f} s CPU  {self.peak / 1e6:6.0f} MB  {self.rows} rows"


def write_run(out: Path, rollouts: int, ranks: int, records: int) -> Path:
    """A run of that size below `out`: per rank and rollout a sync of 10 buckets, the rest in steps."""
    for rank in range(ranks):
        process = ProcessFile(
            _RUN, pid=1000 + rank, role="actor", rank=rank, world_size=ranks, ranks={"pp": 0}
        )
        for rollout in range(rollouts):
            at = rollout * 10_000 * MS
            step = process.phase("train_step", at, at + 5_000 * MS, rollout=rollout)
            for number in range(records - 32):
                begin = at + number * 10 * MS
                name = ("forward", "backward", "grad_sync", "optimizer")[number % 4]
                process.phase(name, begin, begin + (5 + rank % 3) * MS, rollout=rollout, parent=step)
            key = {"sync": rollout, "source": f"actor-0@{rank}", "weight_version": str(rollout)}
            begin = at + 6_000 * MS
            whole = process.phase("weight_sync", begin, begin + 400 * MS, rollout=rollout, **key)
            for bucket in range(10):
                for number, name in enumerate(("bucket_ready", "bucket_send", "bucket_ack")):
                    start = begin + (bucket * 40 + number * 12) * MS
                    about = {"bucket": bucket, "bytes": 1 << 28, "tensors": 9, "transport": "nccl"}
                    process.phase(name, start, start + 12 * MS, rollout=rollout, parent=whole, **key, **about)
            process.clock(at + 9_000 * MS)
        process.end(rollouts * 10_000 * MS)
        process.write(out)
    return RunPaths(out, _RUN).root


def measure(program: str, cache: Path, *arguments: str) -> Cost:
    """What a program costs in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )
    return Cost(*json.loads(done.stdout))


def main() -> None:
    """Write a run, make its tables, ask each view."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--records", type=int, default=300)
    parser.add_argument("--small", action="store_true", help="5 rollouts of 8 ranks")
    parser.add_argument("--pandas", action="store_true", help="also have pandas read the files")
    chosen = parser.parse_args()
    if chosen.small:
        chosen.rollouts, chosen.ranks = 5, 8
    with tempfile.TemporaryDirectory() as scratch:
        out, cache = Path(scratch) / "runs", Path(scratch) / "cache"
        run = write_run(out, chosen.rollouts, chosen.ranks, chosen.records)
        size = sum(path.stat().st_size for path in run.rglob("*.jsonl"))
        print(
            f"{chosen.rollouts} rollouts x {chosen.ranks} ranks x {chosen.records} records, "
            f"{size / 1e6:.0f} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        )
        begun = time.perf_counter()
        cost = measure(_VIEW, cache, str(run), "rollout")
        print(f"cache and view rollout  {cost}  ({cost.told})")
        for view in ("rollout", "sync", "bucket", "ranks"):
            print(f"view {view:<18} {measure(_VIEW, cache, str(run), view)}")
        if chosen.pandas:
            print(f"pandas reads the lines  {measure(_PANDAS, cache, str(run))}")
        print(f"in all {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
