"""Every hook of SGLang against the source of the real wheels, which is read and not imported."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest
from recordings import ROOT

from slime_profiler_plugin.attach.sglang import TARGETS
from slime_profiler_plugin.attach.sglang import _targets as targets

WHEELS = ROOT / ".cache" / "wheels"
#: Of each version, the targets that it lacks.
LACKS = {
    "0.5.15.post1": {
        targets.CALL_PULL,
        targets.UPDATER_DISK,
        targets.UPDATER_RECEIVE,
        targets.UPDATER_LOAD,
        targets.UPDATER_TENSORS,
    },
    "0.5.23": {
        targets.CALL_PULL,
        targets.RUNNER_DISK,
        targets.RUNNER_BROADCAST,
        targets.RUNNER_TENSORS,
    },
}


@cache
def find_wheel(version: str) -> Path:
    """The wheel of `version`, fetched once; skips where it cannot be had."""
    pattern = f"sglang-{version}-*.whl"
    if not list(WHEELS.glob(pattern)):
        command = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
            *("--python-version", "3.11", "--platform", "manylinux_2_34_x86_64"),
            *("--dest", str(WHEELS), f"sglang=={version}"),
        ]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=100)
        except (subprocess.SubprocessError, OSError):
            pytest.skip(f"the wheel sglang=={version} is not in .cache/wheels and cannot be fetched")
    return next(WHEELS.glob(pattern))


@cache
def functions(version: str, module: str) -> dict[str, tuple[str, ...]]:
    """The names of a module's functions and methods, with their parameters; empty when there is no such."""
    member = module.replace(".", "/") + ".py"
    with zipfile.ZipFile(find_wheel(version)) as wheel:
        if member not in wheel.namelist():
            return {}
        tree = ast.parse(wheel.read(member))
    found = {}
    for outer in tree.body:
        inner = outer.body if isinstance(outer, ast.ClassDef) else [outer]
        prefix = f"{outer.name}." if isinstance(outer, ast.ClassDef) else ""
        for node in inner:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                arguments = node.args
                names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                found[prefix + node.name] = tuple(argument.arg for argument in names)
    return found


@pytest.mark.parametrize("version", LACKS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_target_is_there_with_its_parameters(version, target):
    found = functions(version, target.module).get(target.name)
    if target in LACKS[version]:
        assert found is None
        assert target.optional
        return
    assert found is not None, f"{target.module}.{target.name} is not in {version}"
    rest = iter(found)
    assert all(name in rest for name in target.parameters), found


@pytest.mark.parametrize("version", LACKS)
def test_each_phase_has_a_target_that_is_there(version):
    there = [target for target in TARGETS if target not in LACKS[version]]
    below = {"RUNNER", "UPDATER"}
    names = {name for name in vars(targets) if name.split("_")[0] in below}
    covered = {p for name in names if getattr(targets, name) in there for p in getattr(targets, name).phases}
    assert covered == {"engine_receive", "engine_load"}


@pytest.mark.parametrize("version", LACKS)
def test_engine_calls_the_entry_point_group(version):
    with zipfile.ZipFile(find_wheel(version)) as wheel:
        source = wheel.read("sglang/srt/plugins/__init__.py").decode()
        assert 'GENERAL_PLUGINS_GROUP = "sglang.srt.plugins"' in source
        scheduler = wheel.read("sglang/srt/managers/scheduler.py").decode()
    body = scheduler[scheduler.index("def run_scheduler_process") :]
    assert 0 < body.index("load_plugins()") < body.index("Scheduler(")


@pytest.mark.parametrize("version", LACKS)
def test_requests_have_the_fields_that_are_read(version):
    with zipfile.ZipFile(find_wheel(version)) as wheel:
        tree = ast.parse(wheel.read("sglang/srt/managers/io_struct.py"))
    fields = {
        node.name: {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    assert "weight_version" in fields["UpdateWeightFromDiskReqInput"]
    assert fields["UpdateWeightsFromTensorReqInput"] >= {"weight_version", "serialized_named_tensors"}
    broadcast = fields["UpdateWeightsFromDistributedReqInput"]
    assert broadcast >= {"weight_version", "group_name", "dtypes", "shapes"}
    profile = {"output_dir", "num_steps", "activities", "with_stack", "record_shapes", "profile_id"}
    assert fields["ProfileReq"] >= profile | {"merge_profiles"}
