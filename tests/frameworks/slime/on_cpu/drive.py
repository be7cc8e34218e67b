"""Runs a script of slime's on a Ray of its own that knows nothing but this machine: ``drive.py SCRIPT ...``.

Ray counts two GPUs, which are not there: they are what slime's placement groups ask for.
"""

from __future__ import annotations

import os
import runpy
import sys

import ray

if __name__ == "__main__":
    ray.init(
        num_cpus=8,
        num_gpus=2,
        include_dashboard=False,
        object_store_memory=150 << 20,
        _node_ip_address="127.0.0.1",
        _temp_dir=os.environ["SLIME_TESTS_RAY"],
    )
    sys.argv = sys.argv[1:]
    sys.path.insert(0, os.path.dirname(sys.argv[0]))
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        ray.shutdown()
