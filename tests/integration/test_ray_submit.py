"""`ray job submit`, as slime is launched: the driver is a child of Ray's own actor, and Ray connects it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

pytest.importorskip("ray")

from ray_cluster import ROOT, clean_environment, open_cluster
from ray_nodes import HEAD, Nodes

from slime_profiler_plugin.read import read_run

pytestmark = [
    pytest.mark.ray,
    pytest.mark.full,
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("aiohttp") is None, reason="needs the package ray[default]"),
]

DRIVER = (
    HEAD
    + """
from slime_profiler_plugin import timeline
actor = Actor.remote()  # connects
answers = ray.get([actor.work.remote(), actor.child.remote()])
with timeline.phase("generate"):
    pass
print("ANSWERS", json.dumps([timeline.on, *answers]))
"""
)


@pytest.fixture(scope="module")
def submit(tmp_path_factory):
    """Submits a command to a cluster with a dashboard; gives where it records, and what it printed."""
    out = tmp_path_factory.mktemp("submitted") / "out"
    with open_cluster(clean_environment(PYTHONPATH=str(ROOT))) as cluster:
        address = cluster.start_head(dashboard=True)
        cluster.wait_for(1)
        runtime_env = {"env_vars": json.loads(Nodes(cluster, ROOT).env_vars(out))}
        job = ["job", "submit", f"--address={address}", "--runtime-env-json", json.dumps(runtime_env), "--"]

        def run(*command):
            done = subprocess.run(
                [sys.executable, "-m", "ray.scripts.scripts", *job, sys.executable, *command],
                env=clean_environment(),
                cwd=cluster.folder,
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return out, done.stdout

        yield run


def test_driver_actor_and_child_are_one_run_and_the_supervisor_is_none(submit, tmp_path):
    (tmp_path / "driver.py").write_text(DRIVER)
    out, told = submit(str(tmp_path / "driver.py"))
    assert "ANSWERS [true, true, [true, true]]" in told
    (folder,) = out.iterdir()
    run = read_run([folder])
    assert run.damage == []
    assert run.attempts == [0]
    assert sorted(str(p.process.role) for p in run.processes) == ["None", "None", "driver"]
    assert run.run_id.startswith("ray-session_")


def test_the_doctor_as_a_job_looks_at_what_that_job_gives(submit):
    _, told = submit("-m", "slime_profiler_plugin.cli", "doctor", "--cluster")
    assert "): ready: version " in told
