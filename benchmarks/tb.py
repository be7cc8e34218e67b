"""What the TensorBoard tab costs on large runs that are made up.

    python benchmarks/tb.py [--rollouts 100] [--ranks 64] [--heat-ranks 1024] [--records 300]
    python benchmarks/tb.py --small

Prints for each route the seconds of the first answer, which makes the tables, of the first in a process that
finds them made, and of the next; then, in a real TensorBoard, how long the heat map takes from a move
to a frame in a headless Chromium, and how much the server grows while a merged trace of 300 MB is streamed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from report import write_run
from tensorboard.plugins.base_plugin import TBContext

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from browser import find_installed, run_browser
from tensorboard_server import PROGRAM, open_tab, run_tensorboard

from slime_profiler_plugin.testing import write_synthetic_run
from slime_tb_plugin.plugin import TimelinePlugin

STREAMED = 300_000_000
MOVES = 200
RUN = "large"


def make_ask(runs: Path) -> Callable[..., tuple[float, bytes]]:
    """A function that asks a route of the tab's back end, and answers the seconds and the body."""
    flags = argparse.Namespace(host=None, bind_all=False)
    apps = TimelinePlugin(TBContext(logdir=str(runs), flags=flags)).get_plugin_apps()

    def ask(route: str, **query: Any) -> tuple[float, bytes]:
        environ = {"REQUEST_METHOD": "GET", "HTTP_HOST": "localhost", "QUERY_STRING": urlencode(query)}
        begun = time.perf_counter()
        body = b"".join(apps[route](environ, lambda *_: None))
        return time.perf_counter() - begun, body

    return ask


def ask_routes(runs: Path) -> None:
    """Print a line of JSON for each route: its name, seconds of the first and the next answer, bytes."""
    ask = make_ask(runs)
    run = {"run": RUN, "attempt": 0}
    queries: list[tuple[str, dict[str, Any]]] = [
        ("/runs", {}),
        ("/attempts", {"run": RUN}),
        ("/overview", run),
        ("/ranks", {**run, "rollout": 1}),
        ("/sync", run),
        ("/buckets", {**run, "rollout": 1, "sync": 1, "source": "actor-0@0"}),
        ("/health", {"run": RUN}),
    ]
    for route, query in queries:
        first, body = ask(route, **query)
        again = min(ask(route, **query)[0] for _ in range(3))
        print(json.dumps([route, first, again, len(body)]), flush=True)


def measure_routes(runs: Path, cache: Path) -> None:
    """Print what the routes cost where there are no tables yet, and in a process that finds them."""
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, __file__, "--routes", str(runs)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        )
        told.append([json.loads(line) for line in done.stdout.splitlines()])
    for (route, made, _, _), (_, first, again, size) in zip(*told, strict=True):
        print(
            f"{route:10} tables made {made:7.2f} s, found {first:6.3f} s, again {again:6.3f} s, {size:>9} B"
        )


def measure_heat_map(runs: Path, scratch: Path) -> None:
    """Print how long the heat map takes from a move to a frame."""
    with run_tensorboard(runs, scratch) as server, run_browser(find_installed(), PROGRAM) as browser:
        server.ask("attempts", run=RUN)
        open_tab(browser, server, run=RUN, attempt=0, rollout=0, view="ranks")
        browser.do("wait", selector='main[data-view="ranks"][data-done]')
        for what in ("scroll", "hover"):
            told = browser.do("paces", what=what, moves=MOVES)
            taken = sorted(told["frames"])
            middle, most = taken[len(taken) // 2], taken[int(len(taken) * 0.95)]
            print(
                f"heat map: {what:6} to the frame: median {middle:5.1f} ms, p95 {most:5.1f} ms; "
                f"{told['cpu']:.1f} ms CPU of the page; {MOVES} moves, load {os.getloadavg()[0]:.1f}"
            )


def read_memory(pid: int, word: str) -> float:
    """MB of a process that its status names so."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{word}:")) / 1000


def measure_streaming(scratch: Path) -> None:
    """Print how much a TensorBoard grows while it sends a large merged trace."""
    runs = scratch / "runs"
    write_synthetic_run(runs)
    query: dict[str, Any] = {"run": "synthetic", "attempt": 0, "rollout": 1}
    with run_tensorboard(runs, scratch) as server:
        while server.ask("merge/start", **query)["state"] != "done":
            time.sleep(0.1)
        (merged,) = (scratch / "cache" / "slime-profiler" / "tensorboard").glob("*.trace.json.gz")
        with merged.open("r+b") as stream:
            stream.truncate(STREAMED)
        before = read_memory(server.pid, "VmRSS")
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")
        begun, sent = time.perf_counter(), 0
        with server.open("merge/download", **query) as answer:
            while piece := answer.read(1 << 20):
                sent += len(piece)
        assert sent == STREAMED
        grown = read_memory(server.pid, "VmHWM") - before
        print(
            f"streaming: {sent} B in {time.perf_counter() - begun:.1f} s, the server grew by {grown:.1f} MB"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--heat-ranks", type=int, default=1024)
    parser.add_argument("--records", type=int, default=300)
    parser.add_argument("--small", action="store_true", help="5 rollouts of 8 ranks")
    parser.add_argument("--routes", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.routes:
        ask_routes(chosen.routes)
        return
    if chosen.small:
        chosen.rollouts, chosen.ranks, chosen.heat_ranks = 5, 8, 64
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        made = write_run(scratch / "routes", chosen.rollouts, chosen.ranks, chosen.records)
        size = sum(path.stat().st_size for path in made.rglob("*.jsonl"))
        shape = f"{chosen.rollouts} rollouts x {chosen.ranks} ranks x {chosen.records} records"
        print(f"{shape}, {size / 1e6:.0f} MB")
        measure_routes(scratch / "routes", scratch / "cache")
        for what, folder in (("heat map", "heat"), ("streaming", "stream")):
            (scratch / folder).mkdir()
            try:
                if what == "streaming":
                    measure_streaming(scratch / folder)
                else:
                    write_run(scratch / "heat" / "runs", 1, chosen.heat_ranks, chosen.records)
                    print(f"1 rollout x {chosen.heat_ranks} ranks x {chosen.records} records")
                    measure_heat_map(scratch / "heat" / "runs", scratch / "heat")
            except pytest.skip.Exception as absent:
                print(f"{what}: not measured: {absent}")


if __name__ == "__main__":
    main()
