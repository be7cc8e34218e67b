"""What a program and everything it starts cost: CPU from the kernel, memory sampled while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

_PERIOD_S = 0.05


class Cost(NamedTuple):
    """`cpu_s`: user and system, with all children that ended. `wall_s`: from start to end.

    `rss_mb`: the largest sum, over the processes alive together, of their resident memory, every 50 ms.
    A page that several of them share counts in each; `pss_mb` is the same with such a page counted once.
    `largest_mb`: the peak of the largest single process, which the kernel keeps, so no sample misses it.
    """

    cpu_s: float
    wall_s: float
    rss_mb: float
    pss_mb: float
    largest_mb: float


class FailedError(Exception):
    """The program ended with an error; the message is what it wrote."""


def measure(command: list[str]) -> Cost:
    """Run `command` and wait for it. Raises `FailedError`."""
    with tempfile.TemporaryFile() as output:
        # A process counts as its own the memory of the one it was started from, up to its exec. So what is
        # measured is started by a small process, not by this one.
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", _LAUNCHER, *command], stdout=output, stderr=subprocess.STDOUT
        )
        rss = pss = 0
        while True:
            done, status, used = os.wait4(process.pid, os.WNOHANG)
            if done:
                break
            now = _memory_of(_descendants(process.pid))
            rss, pss = max(rss, now[0]), max(pss, now[1])
            time.sleep(_PERIOD_S)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - start
        if process.returncode:
            output.seek(0)
            raise FailedError(output.read().decode(errors="replace").strip()[-2000:])
    return Cost(used.ru_utime + used.ru_stime, wall, rss / 1024, pss / 1024, used.ru_maxrss / 1024)


#: Runs what follows as a child and hands its exit status on.
_LAUNCHER = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"


def _descendants(root: int) -> list[int]:
    """The processes below `root`, without it."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            children[int(stat.rpartition(")")[2].split()[1])].append(int(entry.name))
    found = list(children[root])
    for pid in found:
        found.extend(children[pid])
    return found


def _memory_of(pids: list[int]) -> tuple[int, int]:
    """kB that are resident, and the same with shared pages divided among those who share them."""
    rss = pss = 0
    for pid in pids:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in rollup.splitlines()[1:])
        rss += int(fields["Rss"].split()[0])
        pss += int(fields["Pss"].split()[0])
    return rss, pss
