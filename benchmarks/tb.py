"""What the TensorBoard tab's back end costs on a made-up run of many ranks.

    python benchmarks/tb.py [RANKS [ROLLOUTS]]

Prints for each route the seconds of the first answer and of the second, and bytes; then how much the process
grows while a merged file of 300 MB is streamed.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

from tensorboard.plugins.base_plugin import TBContext

from slime_profiler_plugin.testing import write_synthetic_run
from slime_tb_plugin._responses import send_file
from slime_tb_plugin.plugin import TimelinePlugin

STREAMED = 300_000_000


def main() -> None:
    """Measure and print."""
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    rollouts = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    with tempfile.TemporaryDirectory() as scratch:
        runs = Path(scratch)
        # 30 steps are 120 phases per rank and rollout.
        write_synthetic_run(runs, trainers=ranks, engines=8, rollouts=rollouts, steps=30, buckets=20)
        size = sum(path.stat().st_size for path in runs.rglob("*.jsonl"))
        print(f"{ranks} trainer ranks, {rollouts} rollouts, {size / 1e6:.0f} MB of records")
        flags = argparse.Namespace(host=None, bind_all=False)
        apps = TimelinePlugin(TBContext(logdir=scratch, flags=flags)).get_plugin_apps()
        run = {"run": "synthetic", "attempt": 0}
        for route, query in (
            ("/attempts", {"run": "synthetic"}),
            ("/overview", run),
            ("/ranks", {**run, "rollout": 0}),
            ("/sync", {**run, "rollout": 0}),
            ("/health", {"run": "synthetic"}),
        ):
            environ = {"REQUEST_METHOD": "GET", "HTTP_HOST": "localhost", "QUERY_STRING": urlencode(query)}
            taken = []
            for _ in range(2):
                start = time.perf_counter()
                body = b"".join(apps[route](environ, lambda *_: None))
                taken.append(time.perf_counter() - start)
            print(f"{route:10} first {taken[0]:7.3f} s   again {taken[1]:7.3f} s   {len(body):>9} bytes")
        big = runs / "big"
        with big.open("wb") as stream:
            stream.truncate(STREAMED)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sent = sum(map(len, send_file(big, "application/gzip").body))
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"{sent} bytes streamed, the process grew by {grown:.1f} MB")


if __name__ == "__main__":
    main()
