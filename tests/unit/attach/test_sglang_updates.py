"""Phases of weight updates, with small stand-ins for SGLang's classes."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from recordings import Recording, environment, read_file, record_files

from slime_profiler_plugin import timeline
from slime_profiler_plugin.attach import _wrap
from slime_profiler_plugin.attach._targets import Target
from slime_profiler_plugin.attach.sglang import _hooks, _register, _updates, register
from slime_profiler_plugin.attach.sglang import _targets as targets

torch = pytest.importorskip("torch")


class Model:
    """Stands for SGLang's models: it has parameters and loads weights."""

    def __init__(self, fails=False):
        self.loaded = []
        self.fails = fails

    def parameters(self):
        return [torch.zeros(4, dtype=torch.bfloat16)]

    def load_weights(self, weights):
        if self.fails:
            raise ValueError("shape")
        self.loaded.append([name for name, _ in weights])


class OldRunner:
    """Stands for `ModelRunner` of 0.5.15."""

    def __init__(self, model):
        self.model = model

    def update_weights_from_disk(self, model_path, load_format):
        self.model.load_weights([("disk", None)])
        return True, model_path

    def update_weights_from_distributed(self, names, dtypes, shapes, group_name, load_format=None):
        try:
            self.model.load_weights([(name, None) for name in names])
        except ValueError as error:
            return False, str(error)
        return True, "ok"

    def update_weights_from_tensor(self, named_tensors, load_format=None):
        self.model.load_weights(named_tensors)
        return True, "ok"


class NewUpdater:
    """Stands for `WeightUpdater` of 0.5.23."""

    def __init__(self, model):
        self.model = model

    def get_model(self):
        return self.model

    def receive_weights_from_distributed(self, *, names, dtypes, shapes, group_name, load_format=None):
        return [(name, None) for name in names]

    def load_weights_from_distributed(self, named_tensors):
        self.model.load_weights(named_tensors)
        return True, "ok"


class Manager:
    """Stands for `SchedulerWeightUpdaterManager`, over either."""

    def __init__(self, runner):
        self.runner = runner

    def update_weights_from_disk(self, recv_req):
        result = self.runner.update_weights_from_disk(recv_req.model_path, None)
        self.flush_cache()
        return result

    def update_weights_from_distributed(self, recv_req):
        if isinstance(self.runner, OldRunner):
            return self.runner.update_weights_from_distributed(
                recv_req.names, recv_req.dtypes, recv_req.shapes, recv_req.group_name
            )
        given = self.runner.receive_weights_from_distributed(
            names=recv_req.names, dtypes=recv_req.dtypes, shapes=recv_req.shapes, group_name="g"
        )
        return self.runner.load_weights_from_distributed(given)

    def update_weights_from_tensor(self, recv_req):
        return self.runner.update_weights_from_tensor(named_tensors=recv_req.opened)

    def pull_weights(self, recv_req):
        return "pulled"

    def flush_cache(self):
        return True


STAND_INS = {
    targets.CALL_DISK: Manager,
    targets.CALL_BROADCAST: Manager,
    targets.CALL_TENSORS: Manager,
    targets.CALL_PULL: Manager,
    targets.FLUSH: Manager,
    targets.RUNNER_DISK: OldRunner,
    targets.RUNNER_BROADCAST: OldRunner,
    targets.RUNNER_TENSORS: OldRunner,
    targets.UPDATER_RECEIVE: NewUpdater,
    targets.UPDATER_LOAD: NewUpdater,
}


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Wraps the stand-ins and records; gives the phases so far as (name, fields of interest)."""
    monkeypatch.setattr(_updates, "_ordinals", _updates.Ordinals())
    for target, owner in STAND_INS.items():
        name = f"{owner.__name__}.{target.name.rpartition('.')[2]}"
        parameters = tuple(p for p in target.parameters if p != "load_format")
        _wrap.wrap(Target("sglang", __name__, name, parameters, ()), _hooks.HOOKS[target])
    for name in [name for name in os.environ if name.startswith("SLIME_")]:
        monkeypatch.delenv(name)
    timeline.start(
        {"out": str(tmp_path), "outputs": {"nvtx": False}}, run_id="run", role="engine", rank=0, world_size=1
    )

    def phases():
        timeline.flush()
        (file,) = record_files(tmp_path)
        return sorted(Recording(read_file(file)).phases, key=lambda phase: (phase.start_ns, phase.id))

    yield phases
    timeline.stop()
    _wrap.unwrap_all()


def broadcast(version, names=("w", "v"), group="g"):
    return SimpleNamespace(
        names=list(names),
        dtypes=["bfloat16"] * len(names),
        shapes=[[3, 2]] * len(names),
        group_name=group,
        weight_version=version,
    )


@pytest.mark.parametrize("below", [OldRunner, NewUpdater])
def test_broadcast_is_received_then_loaded(record, below):
    model = Model()
    manager = Manager(below(model))
    assert manager.update_weights_from_distributed(broadcast("1")) == (True, "ok")
    assert manager.update_weights_from_distributed(recv_req=broadcast("1", ("x",))) == (True, "ok")
    assert model.loaded == [["w", "v"], ["x"]]
    assert "load_weights" not in vars(model)
    told = [(p.name, p.bucket, p.bytes, p.tensors, p.transport, p.weight_version) for p in record()]
    assert told == [
        ("engine_receive", 0, 24, 2, "nccl", "1"),
        ("engine_load", 0, 24, 2, "nccl", "1"),
        ("engine_receive", 1, 12, 1, "nccl", "1"),
        ("engine_load", 1, 12, 1, "nccl", "1"),
    ]
    assert all(p.attrs == {"group": "g"} for p in record())
    assert all(p.parent is None for p in record())


def test_groups_and_versions_are_counted_apart(record):
    manager = Manager(OldRunner(Model()))
    for version, group in (("1", "a"), ("1", "b"), ("1", "a"), ("2", "a")):
        manager.update_weights_from_distributed(broadcast(version, group=group))
    told = [(p.attrs["group"], p.bucket) for p in record() if p.name == "engine_receive"]
    assert told == [("a", 0), ("b", 0), ("a", 1), ("a", 0)]


def test_tensors_are_opened_then_loaded(record):
    model = Model()
    request = SimpleNamespace(
        weight_version=None, opened=[("w", torch.zeros(5)), ("v", torch.zeros(1, dtype=torch.bfloat16))]
    )
    assert Manager(OldRunner(model)).update_weights_from_tensor(request) == (True, "ok")
    told = [(p.name, p.bytes, p.tensors, p.transport, p.weight_version) for p in record()]
    assert told == [("engine_receive", 22, 2, "ipc", None), ("engine_load", 22, 2, "ipc", None)]


def test_disk_is_loaded_and_the_cache_flushed(record):
    request = SimpleNamespace(weight_version="7", model_path="somewhere")
    assert Manager(OldRunner(Model())).update_weights_from_disk(request) == (True, "somewhere")
    told = [(p.name, p.bytes, p.tensors, p.transport, p.weight_version) for p in record()]
    assert told == [("engine_load", 8, 1, "disk", "7"), ("engine_flush", None, None, "disk", "7")]


def test_pull_names_its_version(record):
    assert Manager(None).pull_weights(SimpleNamespace(target_version=3)) == "pulled"
    assert [(p.name, p.weight_version) for p in record()] == [("engine_pull", "3")]


def test_failed_load_is_the_engines_and_leaves_no_shadow(record):
    model = Model(fails=True)
    answer = Manager(OldRunner(model)).update_weights_from_distributed(broadcast("1"))
    assert answer == (False, "shape")
    assert "load_weights" not in vars(model)
    errors = {p.name: p.error for p in record()}
    assert errors["engine_receive"] is None
    assert "shape" in errors["engine_load"]


@pytest.mark.usefixtures("record")
def test_request_that_lacks_what_we_read_is_served():
    odd = SimpleNamespace(names=["w"], dtypes=["no such"], shapes=[[1]], group_name="g", weight_version="1")
    manager = Manager(OldRunner(Model()))
    assert manager.update_weights_from_distributed(odd) == (True, "ok")
    assert manager.update_weights_from_distributed(broadcast("1")) == (True, "ok")


def test_runner_called_by_anyone_else_is_left_alone(record):
    model = Model()
    assert OldRunner(model).update_weights_from_distributed(["w"], ["int8"], [[1]], "g") == (True, "ok")
    assert OldRunner(model).update_weights_from_tensor([]) == (True, "ok")
    assert NewUpdater(model).load_weights_from_distributed([]) == (True, "ok")
    timeline.mark("seen")
    assert record() == []


@pytest.mark.parametrize("environ", [{}, {"SLIME_PROFILER": "off", "SLIME_COMMUNICATION_TIMELINE": "1"}])
def test_no_switch_attaches_nothing(monkeypatch, environ):
    for name in ("SLIME_PROFILER", "SLIME_COMMUNICATION_TIMELINE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(_wrap, "wrap", lambda *_: pytest.fail("wrapped"))
    register()
    assert not _register._registered


def test_a_switch_attaches_all_once(monkeypatch):
    monkeypatch.setenv("SLIME_COMMUNICATION_TIMELINE", "1")
    monkeypatch.delenv("SLIME_PROFILER", raising=False)
    wrapped = []
    monkeypatch.setattr(_wrap, "wrap", lambda target, _around: wrapped.append(target))
    try:
        register()
        register()
    finally:
        _register.forget()
    assert wrapped == list(targets.TARGETS)


def test_with_no_switch_nothing_of_the_recorder_is_imported():
    program = (
        "import sys; from slime_profiler_plugin.attach.sglang import register; register();"
        "heavy = ('slime_profiler_plugin.record', 'slime_profiler_plugin.config', 'torch', 'sglang');"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    environ = {k: v for k, v in environment().items() if not k.startswith("SLIME_")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[]\n"
