"""The demo beside another Ray cluster, which ``RAY_ADDRESS`` names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")

pytestmark = [pytest.mark.ray, pytest.mark.full, pytest.mark.timeout(400)]

#: Starts a cluster, tells its address, and on each line of input what it has seen.
OTHER = textwrap.dedent(
    """
    import json, sys
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=sys.argv[1])

    @ray.remote
    def answer():
        return 42

    print(ray.get_runtime_context().gcs_address, flush=True)
    for _ in sys.stdin:
        jobs = ray._private.state.jobs()
        actors = ray._private.state.actors()
        told = {"jobs": len(jobs), "actors": len(actors), "answer": ray.get(answer.remote(), timeout=60)}
        print(json.dumps(told), flush=True)
    """
)
DEMO = textwrap.dedent(
    """
    import json, os, sys
    from slime_profiler_plugin.demo import Settings, run_demo

    result = run_demo(sys.argv[1], Settings(rollouts=1), "off")
    print(json.dumps([len(result.loop.rollouts), os.environ["RAY_ADDRESS"]]))
    """
)


@pytest.fixture
def other_cluster():
    environment = {n: v for n, v in os.environ.items() if not n.startswith("RAY_")}
    environment |= {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # keeps it on 127.0.0.1
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    # Ray's socket paths do not fit below pytest's folders.
    with (
        tempfile.TemporaryDirectory(prefix="spo", dir="/tmp", ignore_cleanup_errors=True) as folder,
        subprocess.Popen(
            [sys.executable, "-c", OTHER, folder],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        yield process, process.stdout.readline().strip()
        process.stdin.close()


def ask(process) -> dict[str, int]:
    process.stdin.write("\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_the_demo_runs_and_the_other_cluster_sees_nothing_and_lives_on(other_cluster, tmp_path):
    process, address = other_cluster
    assert ask(process) == {"jobs": 1, "actors": 0, "answer": 42}
    done = subprocess.run(
        [sys.executable, "-c", DEMO, str(tmp_path)],
        check=False,
        env={**os.environ, "RAY_ADDRESS": address},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [2, address]
    assert ask(process) == {"jobs": 1, "actors": 0, "answer": 42}
    assert process.poll() is None
