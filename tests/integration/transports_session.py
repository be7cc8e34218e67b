"""Runs one small demo per transport that `demo_session.py` does not run, and tells what they gave.

A process of its own, started by the fixture `demos`, so that the tests' own process never meets Ray.
Prints one JSON object: by transport, what is known of the run without the record of it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from slime_profiler_plugin.demo import DemoResult, Settings, run_transports
from slime_profiler_plugin.demo._processes import list_descendants

SETTINGS = Settings(rollouts=2)
SHARED = "/dev/shm"
TRANSPORTS = ("ipc", "disk", "disk_delta")


def is_orphan(name: str) -> bool:
    """Whether shared memory was torch's, of a process that is gone (others on the machine have theirs)."""
    found = re.fullmatch(r"torch_(\d+)_\d+_\d+", name)
    return found is not None and not Path("/proc", found[1]).exists()


def tell(result: DemoResult) -> dict[str, Any]:
    assert result.merged is not None
    return {
        "run_folder": str(result.run_folder),
        "model_bytes": result.loop.model_bytes,
        "tensors": result.loop.rollouts[0].proof.tensors,
        "exit_code": result.merged.exit_code(),
        "syncs": [
            {
                "files": sum(report.buckets for report in each.proof.reports),
                "file_bytes": sum(report.file_bytes for report in each.proof.reports),
                "baselines": sorted({report.baseline for report in each.proof.reports}),
            }
            for each in result.loop.rollouts
        ],
    }


def main(out: Path) -> None:
    lines: list[str] = []
    shared = set(os.listdir(SHARED))
    with tempfile.TemporaryDirectory(prefix="spt", dir="/tmp") as scratch:
        tempfile.tempdir = scratch
        demos = run_transports(SETTINGS, TRANSPORTS, out, report=lines.append)
        told: dict[str, Any] = {each.settings.transport: tell(each) for each in demos}
        left_behind = os.listdir(scratch)
    told |= {
        "lines": lines,
        "left_running": len(list_descendants(os.getpid())),
        "left_behind": left_behind,
        "left_shared": [name for name in set(os.listdir(SHARED)) - shared if is_orphan(name)],
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
