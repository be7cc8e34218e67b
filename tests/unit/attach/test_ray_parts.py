"""What attaches to Ray, without Ray: what a node's answer means, and a timeline that is not to be had."""

from __future__ import annotations

import gzip
import json
import os
import threading
from types import SimpleNamespace

import pytest

from slime_profiler_plugin import __version__, timeline
from slime_profiler_plugin.attach import AUTOLOAD_FOLDER, ClusterError, format_nodes, survey_cluster
from slime_profiler_plugin.attach.ray import _cluster, _collect
from slime_profiler_plugin.attach.ray._membership import Membership
from slime_profiler_plugin.identity import LAUNCH_VARIABLE, RUN_ID_VARIABLE

GOOD = {"version": __version__, "on_path": True, "folder": True, "switch": "timeline", "autoload": True}


def judge(**found):
    node = {"node_id": "0123456789", "address": "10.0.0.1", "host": "node1"}
    return _cluster._judge(_cluster._Answer(**node, **found))


@pytest.mark.parametrize(
    ("found", "status", "told"),
    [
        (GOOD, "ready", f"version {__version__}, autoload ran"),
        ({"failure": "no worker started within 60 s"}, "no answer", "no worker started"),
        ({**GOOD, "version": None}, "no package", "not installed there"),
        ({**GOOD, "broken": "ImportError: no isal"}, "no package", "ImportError: no isal"),
        ({**GOOD, "version": "0.0.9"}, "other version", f"version 0.0.9 there, {__version__} here"),
        ({**GOOD, "autoload": False, "on_path": False}, "no autoload", "PYTHONPATH does not hold"),
        ({**GOOD, "autoload": False, "folder": False}, "no autoload", "installed elsewhere there"),
        ({**GOOD, "autoload": False, "switch": None}, "no autoload", "SLIME_PROFILER is not set"),
        ({**GOOD, "autoload": False}, "no autoload", "another sitecustomize"),
    ],
)
def test_what_an_answer_means(found, status, told):
    report = judge(**found)
    assert report.status == status
    assert told in report.detail
    (line, note) = format_nodes([report])
    assert line.startswith(f"node 10.0.0.1 (node1, 01234567): {status}: ")
    assert "PYTHONPATH" in note


def answer(monkeypatch, program):
    monkeypatch.setattr(_cluster, "_PROGRAM", program)
    monkeypatch.setattr(_cluster, "_CONNECT_S", 0.2)
    monkeypatch.setattr(_cluster, "_REST_S", 0.3)


def test_who_never_answers_is_ended(monkeypatch):
    answer(monkeypatch, "import time; time.sleep(1000)")
    with pytest.raises(ClusterError, match=r"'10.0.0.1:6379' did not answer in"):
        survey_cluster({**os.environ, "RAY_ADDRESS": "10.0.0.1:6379"}, timeout_s=0.5)


def test_who_fails_is_told_with_the_last_line(monkeypatch):
    answer(monkeypatch, "import sys; sys.exit('first\\nConnectionError: nobody there')")
    with pytest.raises(ClusterError, match="no Ray cluster answers at 'auto': ConnectionError: nobody there"):
        survey_cluster({"PATH": os.environ["PATH"]}, timeout_s=30)


@pytest.mark.parametrize("job", [{}, {"RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}])
def test_what_the_tasks_are_given(monkeypatch, tmp_path, job):
    file = str(tmp_path / "asked")
    answer(monkeypatch, f"import sys; open({file!r}, 'w').write(sys.stdin.read()); print('[]')")
    assert survey_cluster({"PATH": os.environ["PATH"], "SLIME_PROFILER": "off", **job}, timeout_s=30) == []
    asked = json.loads((tmp_path / "asked").read_text())
    prepared = {"SLIME_PROFILER": "timeline", "PYTHONPATH": f"{AUTOLOAD_FOLDER}:${{PYTHONPATH}}"}
    assert asked["env_vars"] == ({} if job else prepared)
    assert asked["autoload"] == str(AUTOLOAD_FOLDER)


@pytest.fixture
def ray(monkeypatch):
    module = SimpleNamespace(timeline=lambda: [{"name": "a", "ph": "X"}])
    monkeypatch.setitem(__import__("sys").modules, "ray", module)
    return module


def test_a_timeline_is_written_whole(ray, tmp_path):
    path = tmp_path / "traces" / "ray" / "x.trace.json.gz"
    _collect.collect(path)
    assert json.loads(gzip.decompress(path.read_bytes())) == ray.timeline()
    assert os.listdir(path.parent) == [path.name]


def test_no_events_are_no_file_and_a_warning_that_helps(ray, tmp_path, caplog):
    ray.timeline = list
    _collect.collect(tmp_path / "x")
    assert os.listdir(tmp_path) == []
    assert "RAY_task_events_report_interval_ms=200" in caplog.text


def test_what_raises_or_hangs_is_a_warning(ray, tmp_path, caplog, monkeypatch):
    def fail():
        raise ConnectionError("gone")

    ray.timeline = fail
    _collect.collect(tmp_path / "x")
    assert "ConnectionError: gone" in caplog.text
    go_on = threading.Event()
    ray.timeline = lambda: go_on.wait(60) and []
    monkeypatch.setattr(_collect, "_PATIENCE_S", 0.1)
    _collect.collect(tmp_path / "x")
    assert "did not answer within" in caplog.text
    go_on.set()


@pytest.mark.usefixtures("ray")
def test_an_interpreter_that_ends_starts_no_thread(tmp_path, monkeypatch):
    def refuse(_self):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    _collect.collect(tmp_path / "x")
    assert (tmp_path / "x").exists()


@pytest.mark.parametrize(("value", "wanted"), [("1", True), ("0", False), ("", False), (None, False)])
def test_it_is_asked_for_by_ray_s_own_variable(value, wanted):
    assert _collect.is_collected({} if value is None else {"RAY_PROFILING": value}) is wanted


@pytest.fixture
def environ(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("SLIME_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SLIME_PROFILER", "timeline")
    monkeypatch.setenv("SLIME_PROFILER_OUT", str(tmp_path))
    yield os.environ
    for name in (RUN_ID_VARIABLE, LAUNCH_VARIABLE):
        os.environ.pop(name, None)


def test_a_driver_hands_its_run_on_and_takes_it_back(environ):
    membership = Membership()
    membership.join_as_driver()
    assert timeline.on
    assert environ[RUN_ID_VARIABLE] in str(membership.ray_file)
    assert environ[LAUNCH_VARIABLE]
    environ[LAUNCH_VARIABLE] = "somebody else's"
    membership.leave()
    assert RUN_ID_VARIABLE not in environ
    assert environ[LAUNCH_VARIABLE] == "somebody else's"


@pytest.mark.usefixtures("environ")
def test_ray_s_own_actors_are_left_alone(tmp_path):
    membership = Membership()
    membership.join_as_actor("ray.dashboard.modules.job.job_supervisor")
    assert membership.is_actor
    assert not timeline.on
    assert os.listdir(tmp_path) == []


def test_off_is_off(environ, monkeypatch, tmp_path):
    monkeypatch.setenv("SLIME_PROFILER", "off")
    membership = Membership()
    membership.join_as_driver()
    membership.join_as_actor("theirs")
    assert not timeline.on
    assert membership.ray_file is None
    assert RUN_ID_VARIABLE not in environ
    assert os.listdir(tmp_path) == []
