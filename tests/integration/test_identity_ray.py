"""A real Ray job: driver and workers find the same run and attempt on their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("ray")

ROOT = Path(__file__).resolve().parents[2]
DRIVER = """
import json, os, sys
import ray
from slime_profiler_plugin.identity import IdentityError, resolve

out, temporary = sys.argv[1:]

def who(role):
    me = resolve(os.environ, {"role": role}, out)
    return [me.run_id, me.attempt, me.incarnation]

@ray.remote(num_cpus=0)
class Actor:
    def who(self):
        return who("actor")

ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False,
         _temp_dir=temporary, _node_ip_address="127.0.0.1")
try:
    actors = [Actor.remote() for _ in range(2)]
    print(json.dumps([who("driver"), *ray.get([actor.who.remote() for actor in actors])]))
finally:
    ray.shutdown()
"""


@pytest.mark.ray
def test_driver_and_workers_agree(tmp_path: Path) -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLIME_PROFILER", "SLURM", "RAY_"))}
    settings = {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with tempfile.TemporaryDirectory(prefix="ray") as short:  # Ray's socket paths are long
        finished = subprocess.run(
            [sys.executable, "-c", DRIVER, str(tmp_path), short],
            env=clean | settings,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert finished.returncode == 0, finished.stderr
    told = json.loads(finished.stdout.splitlines()[-1])
    assert len({run_id for run_id, _, _ in told}) == 1
    assert told[0][0].startswith("ray-session_")
    assert [attempt for _, attempt, _ in told] == [0, 0, 0]
    assert len({incarnation for _, _, incarnation in told}) == 3
    (run,) = tmp_path.iterdir()
    assert run.name == told[0][0]
