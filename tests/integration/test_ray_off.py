"""Off means off under Ray: no attribute, file, thread or call of Ray differs from one without the package."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("ray")

pytestmark = [pytest.mark.ray, pytest.mark.timeout(200)]

#: A small job whose driver and actor count the functions of Ray that their main thread calls.
SCRIPT = """
import collections, json, os, sys, threading

def watch(job):
    counts, opened = collections.Counter(), []
    def count(frame, event, argument):
        if event == "call" and "/ray/" in frame.f_code.co_filename:
            counts[frame.f_code.co_filename.rpartition("/ray/")[2] + " " + frame.f_code.co_name] += 1
    sys.setprofile(count)
    try:
        job()
    finally:
        sys.setprofile(None)
    return counts

def look(counts):
    import ray._private.function_manager as functions, ray._private.worker as worker
    watched = worker.connect, worker.disconnect, functions.FunctionActorManager.load_actor_class
    return {
        "counts": counts,
        "threads": sorted(thread.name for thread in threading.enumerate() if "slime" in thread.name),
        "files": [f for f in map(read_link, os.listdir("/proc/self/fd")) if "slime" in f],
        "wrapped": [hasattr(function, "__wrapped__") and "slime" in repr(function) for function in watched],
        "homes": [function.__code__.co_filename.rpartition("/")[2] for function in watched],
        "loaded": sorted(m for m in sys.modules if m.startswith("slime_profiler_plugin")),
        "finders": [type(f).__module__ for f in sys.meta_path if "slime" in type(f).__module__],
    }

def read_link(number):
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""

class Actor:
    def work(self, number):
        return number + 1

    def look(self):
        import ray
        def job():
            ref = ray.put([1, 2])
            assert ray.get(ref) == [1, 2]
            ray.wait([ref])
        return look(watch(job))

import ray

class Job:
    def connect(self):
        runtime_env = {"env_vars": json.loads(sys.argv[1])}
        ray.init(log_to_driver=False, logging_level="ERROR", runtime_env=runtime_env)

    def work(self):
        head = next(node for node in ray.nodes() if "node:__internal_head__" in node["Resources"])
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(head["NodeID"], soft=False)
        self.actor = ray.remote(num_cpus=0)(Actor).options(scheduling_strategy=strategy).remote()
        assert ray.get([self.actor.work.remote(n) for n in range(5)]) == [1, 2, 3, 4, 5]

job = Job()
job.connect()
driver = look(watch(job.work))
print(json.dumps([driver, ray.get(job.actor.look.remote())]))
"""


def run(nodes, env_vars):
    return json.loads(nodes.cluster.run(SCRIPT, json.dumps(env_vars), **env_vars).splitlines()[-1])


@pytest.fixture(scope="module")
def without(ray_nodes, tmp_path_factory):
    """In an environment that cannot import the package at all."""
    return run(ray_nodes, {"PYTHONPATH": str(tmp_path_factory.mktemp("empty"))})


def test_without_the_package_there_is_nothing_of_it(without):
    for seen in without:
        assert seen["loaded"] == seen["threads"] == seen["files"] == seen["finders"] == []
        assert sum(seen["counts"].values()) > 10


def test_with_the_switch_ray_s_functions_are_wrapped_which_would_be_seen(ray_nodes, without, tmp_path):
    env_vars = {"PYTHONPATH": f"{ray_nodes.autoload}:{ray_nodes.site}", "SLIME_PROFILER": "timeline"}
    for seen, bare in zip(
        run(ray_nodes, env_vars | {"SLIME_PROFILER_OUT": str(tmp_path)}), without, strict=True
    ):
        assert seen["homes"] == ["_wrap.py"] * 3 != bare["homes"]
        assert [name for name in seen["threads"] if "writer" in name]


@pytest.mark.parametrize("folder", [pytest.param("absent", marks=pytest.mark.full), "present", "off"])
def test_no_switch_no_change(ray_nodes, without, tmp_path, folder):
    path = str(ray_nodes.site) if folder == "absent" else f"{ray_nodes.autoload}:{ray_nodes.site}"
    env_vars = {"PYTHONPATH": path, "SLIME_PROFILER_OUT": str(tmp_path / "out")}
    if folder == "off":
        env_vars |= {"SLIME_PROFILER": "off", "SLIME_COMMUNICATION_TIMELINE": "1"}
    for seen, bare in zip(run(ray_nodes, env_vars), without, strict=True):
        for key in ("counts", "threads", "files", "wrapped", "homes"):
            assert seen[key] == bare[key], key
        assert [module for module in seen["loaded"] if ".record" in module] == []
    assert list(tmp_path.iterdir()) == []
