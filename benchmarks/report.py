"""What tables cost: making the cache, and each view with it, beside pandas reading the same files.

``python benchmarks/report.py`` takes both sizes that we promise something for, `--rollouts` and `--ranks`
another one; ``--small`` is a quick look.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.testing import ProcessFile

MS = 1_000_000
_RUN = "large"
#: Rollouts and ranks.
_SIZES: Final = ((100, 64), (10, 1024))
_SMALL: Final = (5, 8)
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
wanted = ["kind", "name", "rollout", "dur_ns"]
frames = [pandas.read_json(path, lines=True).reindex(columns=wanted).assign(file=number)
    for number, path in enumerate(sorted(Path(sys.argv[1]).glob("records/*/*")))]
frame = pandas.concat(frames)
sums = frame[frame.kind == "phase"].groupby(["file", "rollout", "name"]).dur_ns.agg(["count", "sum", "max"])
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


def compare(rollouts: int, ranks: int, records: int) -> None:
    """Write a run of that size, make its tables, ask each view, and let pandas read the same files."""
    with tempfile.TemporaryDirectory() as scratch:
        out, cache = Path(scratch) / "runs", Path(scratch) / "cache"
        run = write_run(out, rollouts, ranks, records)
        size = sum(path.stat().st_size for path in run.rglob("*.jsonl"))
        print(
            f"{rollouts} rollouts x {ranks} ranks x {records} records, "
            f"{size / 1e6:.0f} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        )
        begun = time.perf_counter()
        cost = measure(_VIEW, cache, str(run), "rollout")
        print(f"cache and view rollout  {cost}  ({cost.told})")
        for view in ("rollout", "sync", "bucket", "ranks"):
            print(f"view {view:<18} {measure(_VIEW, cache, str(run), view)}")
        if importlib.util.find_spec("pandas") is None:
            print("pandas is not installed")
        else:
            cost = measure(_PANDAS, cache, str(run))
            print(f"pandas: lines read      {cost}, summed by rank, rollout and phase")
        print(f"in all {time.perf_counter() - begun:.0f} s", flush=True)


def main() -> None:
    """Both sizes, or the one that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--records", type=int, default=300, help="per rank and rollout")
    parser.add_argument("--small", action="store_true", help=f"{_SMALL[0]} rollouts of {_SMALL[1]} ranks")
    chosen = parser.parse_args()
    sizes = _SIZES
    if chosen.small or chosen.rollouts or chosen.ranks:
        rollouts, ranks = _SMALL if chosen.small else _SIZES[0]
        sizes = ((chosen.rollouts or rollouts, chosen.ranks or ranks),)
    for rollouts, ranks in sizes:
        compare(rollouts, ranks, chosen.records)


if __name__ == "__main__":
    main()
