"""The cluster that the tests of Ray share, and what scripts in it begin with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ray_cluster import ROOT, Cluster, can_mount, clean_environment, open_cluster

#: What scripts begin with. `connect` joins the cluster with the given `env_vars`.
HEAD = """
import json, os, subprocess, sys
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

def connect(env_vars):
    ray.init(log_to_driver=False, logging_level="ERROR", runtime_env={"env_vars": env_vars})

def head_node():
    return next(node for node in ray.nodes() if "node:__internal_head__" in node["Resources"])

def on(node):
    return NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)

CHILD = '''
import json, os, sys
from slime_profiler_plugin import timeline
started = timeline.start()
with timeline.phase("train_step"):
    pass
print(json.dumps([started, "slime_profiler_plugin.attach" in sys.modules]))
'''

@ray.remote(num_cpus=0)
class Actor:
    def work(self):
        from slime_profiler_plugin import timeline
        with timeline.phase("generate"):
            pass
        timeline.flush()
        return timeline.on

    def child(self):
        done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, check=True)
        return json.loads(done.stdout)

    def modules(self, *names):
        import importlib.util
        return [importlib.util.find_spec(name) is not None for name in names]

    def pid(self):
        return os.getpid()
"""


class Nodes:
    """The cluster, where the package lies for its nodes, and what else they can import."""

    def __init__(self, cluster: Cluster, site: Path) -> None:
        self.cluster = cluster
        self.site = site
        self.autoload = site / "slime_profiler_plugin" / "attach" / "autoload"

    def env_vars(self, out: Path, **more: str) -> str:
        """What `slime-profiler env` adds to a job's, which has `more`."""
        theirs = json.dumps({"env_vars": {"SLIME_PROFILER_OUT": str(out), **more}})
        done = self.command_line("env", "--into", theirs)
        return json.dumps(json.loads(done.stdout)["env_vars"])

    def command_line(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """`slime-profiler` as it is installed on the nodes."""
        return subprocess.run(
            [sys.executable, "-m", "slime_profiler_plugin.cli", *arguments],
            env=clean_environment(
                PYTHONPATH=str(self.site), **{"RAY_ADDRESS": self.cluster.address, **environ}
            ),
            cwd=self.cluster.folder,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    def run(self, script: str, env_vars: str, **environ: str):
        """What a driver prints that was started with `env_vars`, as Ray starts one that is submitted."""
        told = json.loads(env_vars)
        told["PYTHONPATH"] = told["PYTHONPATH"].replace("${PYTHONPATH}", str(self.site))
        out = self.cluster.run(HEAD + script, env_vars, **{**told, **environ})
        return json.loads(out.splitlines()[-1])


@contextmanager
def open_nodes(folder: Path) -> Iterator[Nodes]:
    """A head, and where that can be done a node that cannot see the package."""
    site = folder / "site"
    shutil.copytree(ROOT / "slime_profiler_plugin", site / "slime_profiler_plugin")
    shutil.copytree(ROOT / "configs", site / "slime_profiler_configs")
    for name in ("of_the_node", "of_the_user"):
        (folder / name).mkdir()
        (folder / name / f"module_{name}.py").write_text("")
    environment = clean_environment(
        PYTHONPATH=f"{site}:{folder / 'of_the_node'}",
        RAY_PROFILING="1",
        RAY_task_events_report_interval_ms="200",
    )
    with open_cluster(environment) as cluster:
        cluster.start_head()
        if can_mount():
            # The checkout too: it may be installed in this environment.
            cluster.add_node(hidden=[site, ROOT / "slime_profiler_plugin"])
        cluster.wait_for(2 if can_mount() else 1)
        yield Nodes(cluster, site)
