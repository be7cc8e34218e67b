"""A real Ray job whose environment we prepared: who is recorded, and that nothing of ours can hurt it.

One cluster for all: a head, and a node that cannot see the package, in a mount namespace that hides it.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
from pathlib import Path

import pytest

pytest.importorskip("ray")

from ray_cluster import can_mount

from slime_profiler_plugin import __version__
from slime_profiler_plugin.merge import merge_run
from slime_profiler_plugin.read import read_run

pytestmark = [pytest.mark.ray, pytest.mark.timeout(200)]


ENGINE = """
    def before(self, number):
        self.calls += 1
        return 10 * number

    after = before
"""
WRAPPERS = """
from slime_profiler_plugin.attach._targets import Target
from slime_profiler_plugin.attach._wrap import wrap

def before(call, bound):
    raise RuntimeError("before the call")

def after(call, bound):
    call()
    raise RuntimeError("after the call")

wrap(Target("theirs", "theirs", "Engine.before", ("number",), ()), before)
wrap(Target("theirs", "theirs", "Engine.after", ("number",), ()), after)
"""


@pytest.fixture
def nodes(ray_nodes):
    return ray_nodes


@pytest.fixture
def hidden(nodes):
    if not can_mount():
        pytest.skip("needs the right to mount in a namespace of its own (root)")
    return nodes


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
    done = hidden.command_line("doctor", "--cluster", "--json")
    assert done.returncode == 3, done.stderr
    named = sorted((node["status"], node["detail"]) for node in json.loads(done.stdout)["nodes"])
    assert named == [
        ("no package", "slime-profiler-plugin is not installed there"),
        ("ready", f"version {__version__}, autoload ran"),
    ]


@pytest.mark.full
def test_a_node_where_autoload_does_not_run_is_told_with_the_reason(nodes):
    """As the command of a job whose environment was not prepared, or for another machine."""
    elsewhere = str(nodes.autoload.parent / "elsewhere")
    for path, switch, reason in [
        (str(nodes.site), "timeline", f"a worker's PYTHONPATH does not hold {nodes.autoload}"),
        (f"{nodes.autoload}:{nodes.site}", "No", "nothing switches recording on: SLIME_PROFILER is No"),
        (
            f"{elsewhere}:{nodes.autoload}:{nodes.site}",
            "timeline",
            "another sitecustomize was found before it",
        ),
    ]:
        Path(elsewhere).mkdir(exist_ok=True)
        Path(elsewhere, "sitecustomize.py").write_text("")
        job = {"runtime_env": {"env_vars": {"PYTHONPATH": path, "SLIME_PROFILER": switch}}}
        done = nodes.command_line("doctor", "--cluster", RAY_JOB_CONFIG_JSON_ENV_VAR=json.dumps(job))
        assert done.returncode == 3, done.stderr
        assert reason in done.stdout
        assert "an actor whose own env_vars set PYTHONPATH" in done.stdout


@pytest.mark.full
def test_without_a_cluster_the_doctor_says_so(nodes):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"127.0.0.1:{one.getsockname()[1]}"
        done = nodes.command_line("doctor", "--cluster", RAY_ADDRESS=address)
    assert done.returncode == 1
    assert done.stderr.startswith(f"slime-profiler: no Ray cluster answers at '{address}': ")


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
    users = f"{nodes.site.parent / 'of_the_user'}:{nodes.site}"
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


@pytest.mark.full
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


@pytest.mark.parametrize("end", [pytest.param("ray.shutdown()", marks=pytest.mark.full), ""])
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


def test_what_of_ours_raises_kills_nothing(nodes, tmp_path):
    """A copy of the package in which each wrapper around Ray fails, and one of a user's around their own."""
    broken = tmp_path / "broken"
    shutil.copytree(nodes.site, broken, ignore=shutil.ignore_patterns("__pycache__"))
    module = broken / "slime_profiler_plugin" / "attach" / "ray" / "_membership.py"
    text = module.read_text()
    assert "def _join(" in text
    fails = r"    def \1(*_):\n        1 / 0"
    module.write_text(re.sub(r"(?m)^    def (join_as_driver|join_as_actor|leave)\((.*)$", fails, text))
    (broken / "theirs.py").write_text("class Engine:\n    calls = 0\n" + ENGINE)
    (broken / "wrappers.py").write_text(WRAPPERS)
    told = nodes.run(
        """
connect(json.loads(sys.argv[1]))

@ray.remote(num_cpus=0)
class Engine:
    def work(self):
        import wrappers, theirs
        engine = theirs.Engine()
        return [engine.before(1), engine.after(2), engine.before(3), engine.after(4), engine.calls]

actor = Actor.options(scheduling_strategy=on(head_node())).remote()
engine = Engine.options(scheduling_strategy=on(head_node())).remote()
answer = ray.get([actor.work.remote(), engine.work.remote()])
ray.shutdown()
print(json.dumps(answer))
""",
        nodes.env_vars(
            tmp_path / "out",
            PYTHONPATH=f"{broken}:{nodes.site}",
            RAY_PROFILING="1",
        ),
    )
    assert told == [False, [10, 20, 30, 40, 4]]
    assert not (tmp_path / "out").exists()
