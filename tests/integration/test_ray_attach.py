"""A real Ray job whose environment we prepared: who is recorded, and that nothing of ours can hurt it.

One cluster for all: a head, and a node that cannot see the package, in a mount namespace that hides it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("ray")

from ray_cluster import QUIET, ROOT, Cluster, can_mount, clean_environment, open_cluster

from slime_profiler_plugin.attach import autoload_folder
from slime_profiler_plugin.attach.ray import survey_cluster
from slime_profiler_plugin.merge import merge_run
from slime_profiler_plugin.read import read_run

pytestmark = [pytest.mark.ray, pytest.mark.timeout(200)]

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
        return json.loads(subprocess.run([sys.executable, "-c", CHILD], capture_output=True, check=True).stdout)

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
        self.autoload = site / autoload_folder().relative_to(ROOT)

    def env_vars(self, out: Path, **more: str) -> str:
        """As `slime-profiler env` prints them, for scripts."""
        ours = {"SLIME_PROFILER": "timeline", "SLIME_PROFILER_OUT": str(out)}
        return json.dumps({"PYTHONPATH": f"{self.autoload}:${{PYTHONPATH}}", **ours, **more})

    def run(self, script: str, env_vars: str, **environ: str):
        """What a driver prints that was started with `env_vars`, as Ray starts one that is submitted."""
        told = json.loads(env_vars)
        told["PYTHONPATH"] = told["PYTHONPATH"].replace("${PYTHONPATH}", str(self.site))
        out = self.cluster.run(HEAD + script, env_vars, **{**told, **environ})
        return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nodes")
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
        hides = can_mount()
        if hides:
            cluster.add_node(hidden=[site])
        cluster.wait_for(2 if hides else 1)
        yield Nodes(cluster, site)


@pytest.fixture
def hidden(nodes):
    if not can_mount():
        pytest.skip("needs the right to mount in a namespace of its own (root)")
    return nodes


def survey(nodes, env_vars, folder):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUIET.items():
            patch.setenv(name, value)
        return survey_cluster(env_vars, folder, address=nodes.cluster.address)


def processes(out):
    (folder,) = out.iterdir()
    run = read_run([folder])
    assert run.damage == []
    return run


def test_driver_actors_and_their_children_are_one_attempt_of_one_run(nodes, tmp_path):
    told = nodes.run(
        """
connect(json.loads(sys.argv[1]))
head = on(head_node())
from slime_profiler_plugin import timeline
with timeline.phase("generate"):
    pass
reward = {"SLIME_PROFILER_ROLE": "reward", "SLIME_PROFILER_RANK": "1", "SLIME_PROFILER_WORLD_SIZE": "2"}
one = Actor.options(scheduling_strategy=head, runtime_env={"env_vars": reward}).remote()
two = Actor.options(scheduling_strategy=head).remote()
answers = [ray.get([a.work.remote(), a.child.remote()]) for a in (one, two)]
print(json.dumps([answers, ray.get_runtime_context().get_job_id()]))
""",
        nodes.env_vars(tmp_path),
    )
    assert told[0] == [[True, [True, True]]] * 2
    run = processes(tmp_path)
    assert run.run_id.startswith("ray-session_")
    assert run.run_id.endswith(f"-{told[1]}")
    assert run.attempts == [0]
    who = sorted(str((p.process.role, p.process.rank, p.process.world_size)) for p in run.processes)
    driver, reward, nobody = "('driver', 0, 1)", "('reward', 1, 2)", "(None, None, None)"
    assert who == sorted([driver, reward, reward, nobody, nobody])


def test_all_workers_start_and_the_node_without_the_package_is_named(hidden, tmp_path):
    env_vars = hidden.env_vars(tmp_path)
    told = hidden.run(
        """
connect(json.loads(sys.argv[1]))
nodes = sorted(ray.nodes(), key=lambda node: "node:__internal_head__" not in node["Resources"])
actors = [Actor.options(scheduling_strategy=on(node)).remote() for node in nodes]
print(json.dumps(ray.get([actor.modules.remote("slime_profiler_plugin") for actor in actors])))
""",
        env_vars,
    )
    assert told == [[True], [False]]
    reports = survey(hidden, json.loads(env_vars), hidden.autoload)
    found = sorted((report.status, report.detail) for report in reports)
    ready = ("ready", f"version {reports[0].version or reports[1].version}, autoload ran")
    assert found == [("no package", "slime-profiler-plugin is not installed there"), ready]


def test_a_node_where_autoload_does_not_run_is_told_with_the_reason(nodes, tmp_path):
    env_vars = json.loads(nodes.env_vars(tmp_path))
    elsewhere = tmp_path / "autoload"
    reports = [
        survey(nodes, each, folder)
        for each, folder in [
            ({**env_vars, "PYTHONPATH": str(nodes.site)}, nodes.autoload),
            ({**env_vars, "PYTHONPATH": f"{elsewhere}:{nodes.site}"}, elsewhere),
        ]
    ]
    told = [report.detail for each in reports for report in each if report.status == "no autoload"]
    assert told == [
        f"a worker's PYTHONPATH does not hold {nodes.autoload}: its runtime_env sets another",
        f"there is no folder {elsewhere}: the package is installed elsewhere there",
    ]


def test_the_user_s_own_path_and_the_node_s_survive(nodes, tmp_path):
    script = """
env_vars = json.loads(sys.argv[1])
connect(env_vars)
actor = Actor.options(scheduling_strategy=on(head_node())).remote()
names = "module_of_the_node", "module_of_the_user"
print(json.dumps(ray.get([actor.modules.remote(*names), actor.work.remote()])))
"""
    told = nodes.run(script, nodes.env_vars(tmp_path))
    assert told == [[True, False], True]
    users = f"{nodes.autoload}:{nodes.site.parent / 'of_the_user'}:{nodes.site}"
    told = nodes.run(script, nodes.env_vars(tmp_path, PYTHONPATH=users))
    assert told == [[False, True], True]


def test_an_actor_s_own_pythonpath_drops_the_folder_and_only_that_actor_runs_unrecorded(nodes, tmp_path):
    told = nodes.run(
        """
connect(json.loads(sys.argv[1]))
options = {"scheduling_strategy": on(head_node())}
other = Actor.options(**options, runtime_env={"env_vars": {"MINE": "1"}}).remote()
own = Actor.options(**options, runtime_env={"env_vars": {"PYTHONPATH": sys.argv[2]}}).remote()
print(json.dumps(ray.get([other.work.remote(), own.work.remote()])))
""".replace("sys.argv[2]", repr(str(nodes.site))),
        nodes.env_vars(tmp_path),
    )
    assert told == [True, False]


def test_a_run_that_cannot_be_written_is_a_warning(nodes, tmp_path):
    (tmp_path / "file").write_text("")
    told = nodes.run(
        """
connect(json.loads(sys.argv[1]))
actor = Actor.options(scheduling_strategy=on(head_node())).remote()
print(json.dumps(ray.get(actor.work.remote())))
""",
        nodes.env_vars(tmp_path / "file"),
    )
    assert told is False


@pytest.mark.parametrize("end", ["ray.shutdown()", ""])
def test_ray_s_timeline_is_collected_and_merged(nodes, tmp_path, end):
    nodes.run(
        """
connect({**json.loads(sys.argv[1]), "RAY_PROFILING": "1", "RAY_task_events_report_interval_ms": "200"})
from slime_profiler_plugin import timeline
with timeline.rollout(0), timeline.phase("generate"):
    actor = Actor.options(scheduling_strategy=on(head_node())).remote()
    print(json.dumps(ray.get(actor.work.remote())))
"""
        + end,
        nodes.env_vars(tmp_path),
    )
    run = processes(tmp_path)
    (beside,) = run.beside
    assert beside.trace.format == "ray"
    report = merge_run([run.folders[0]], 0)
    (ray_input,) = report.inputs
    assert ray_input.format == "ray"
    assert report.exit_code() == 0
