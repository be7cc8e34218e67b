"""The wheel: what is in it, that it works outside the checkout, that installing it changes nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from distributions import ROOT, Environment, build_wheel, run, stand_in

import slime_profiler_plugin
from slime_profiler_plugin.testing import write_synthetic_run

#: As in test_packaging.
NOT_SHIPPED = {"__pycache__", "README.md"}
PACKAGES = {
    "slime_profiler_plugin": ROOT / "slime_profiler_plugin",
    "slime_tb_plugin": ROOT / "tb_plugin" / "slime_tb_plugin",
    "slime_profiler_configs": ROOT / "configs",
}
#: What slime's image holds, in its frozen versions, and newer releases that an index offers.
FROZEN = {
    "numpy": "1.26.4",
    "torch": "2.9.1",
    "ray": "2.49.0",
    "sglang": "0.5.9",
    "megatron-core": "0.16.0",
    "msgspec": "0.19.0",
    "PyYAML": "6.0.2",
    "click": "8.1.8",
    "rich": "13.9.4",
}
REQUIRES = {"sglang": ["torch==2.9.1", "numpy", "msgspec"], "megatron-core": ["torch", "numpy<2.0.0"]}
NEWER = "99.0"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def frozen_image(tmp_path_factory):
    """An environment with what slime's image holds, and a folder that offers newer releases of it all."""
    folder = tmp_path_factory.mktemp("image")
    environment = Environment(folder / "venv")
    frozen = [stand_in(folder / "frozen", *item, REQUIRES.get(item[0], ())) for item in FROZEN.items()]
    environment.pip("install", "--no-deps", *frozen)
    for name in [*FROZEN, "isal", "nvtx", "duckdb"]:
        stand_in(folder / "offered", name, NEWER)
    return environment, folder / "offered"


def _is_metadata(name: str) -> bool:
    return name.split("/", maxsplit=1)[0].endswith(".dist-info")


def test_wheel_holds_the_tree_and_nothing_else(wheel):
    in_tree = {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in folder.rglob("*")
        if path.is_file() and not NOT_SHIPPED & set(path.parts)
    }
    in_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if not _is_metadata(name)}
    assert in_wheel == in_tree


def test_metadata_names_version_license_and_command(wheel):
    archive = zipfile.ZipFile(wheel)
    texts = {
        name.split("/", 1)[1]: archive.read(name).decode()
        for name in archive.namelist()
        if _is_metadata(name)
    }
    assert f"\nVersion: {slime_profiler_plugin.__version__}\n" in texts["METADATA"]
    assert "\nLicense-Expression: Apache-2.0\n" in texts["METADATA"]
    assert "slime-profiler = slime_profiler_plugin.cli:main" in texts["entry_points.txt"]
    assert "slime_rl_timeline = slime_tb_plugin.plugin:TimelinePlugin" in texts["entry_points.txt"]
    assert "slime_profiler_plugin.attach.sglang:register" in texts["entry_points.txt"]
    assert any(name.endswith("LICENSE") for name in texts)


def test_installed_wheel_works_outside_the_checkout(wheel, tmp_path):
    environment = Environment(tmp_path / "venv")
    environment.pip("install", "--no-deps", wheel)
    environment.borrow_dependencies()
    where = run(
        environment.python,
        "-c",
        f"import {', '.join(PACKAGES)}; print({', '.join(f'{p}.__file__' for p in PACKAGES)}, sep='\\n')",
        cwd=tmp_path,
    )
    for line in where.splitlines():
        assert Path(line).is_relative_to(environment.folder), line
    command = environment.folder / "bin" / "slime-profiler"
    assert run(command, "--version", cwd=tmp_path).split()[-1] == slime_profiler_plugin.__version__
    shown = run(command, "config", "list", cwd=tmp_path)
    for config in (ROOT / "configs").glob("*.yaml"):
        assert config.stem in shown


@pytest.mark.parametrize(
    ("extra", "added"),
    [
        ("", set()),
        ("[record]", {"nvtx"}),
        ("[analyze]", {"duckdb"}),
        ("[record,analyze]", {"nvtx", "duckdb"}),
    ],
)
def test_installing_changes_no_package_of_a_frozen_image(wheel, frozen_image, tmp_path, extra, added):
    """pip's dry run, offline. The image's packages are stand-ins: real names, versions, requirements."""
    environment, offered = frozen_image
    report = tmp_path / "report.json"
    environment.pip(
        "install",
        "--dry-run",
        "--report",
        report,
        "--find-links",
        offered,
        f"slime-profiler-plugin{extra} @ {wheel.as_uri()}",
    )
    installs = {item["metadata"]["name"] for item in json.loads(report.read_text())["install"]}
    assert installs == {"slime-profiler-plugin", "isal"} | added


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="numpy 1.26 has no wheel for this Python")
def test_installing_beside_real_numpy_1_26_changes_nothing_and_works(wheel, tmp_path):
    """The real index and a real numpy; sglang and megatron-core are stand-ins with real metadata."""
    environment = Environment(tmp_path / "venv")
    environment.pip("install", "numpy==1.26.4", online=True)
    foreign = [stand_in(tmp_path / "foreign", name, FROZEN[name]) for name in ("sglang", "megatron-core")]
    environment.pip("install", "--no-deps", *foreign)
    before = set(environment.pip("freeze").splitlines())
    environment.pip("install", f"slime-profiler-plugin[record,analyze] @ {wheel.as_uri()}", online=True)
    assert before <= set(environment.pip("freeze").splitlines())
    assert "timeline" in run(environment.folder / "bin" / "slime-profiler", "config", "list", cwd=tmp_path)


@pytest.fixture
def python3_10():
    """The oldest Python that is supported."""
    found = shutil.which("python3.10")
    if found is None or subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode != 0:
        pytest.skip("Python 3.10 is not installed: install the package python3.10")
    return found


@pytest.mark.full
@pytest.mark.timeout(900)
def test_unit_tests_pass_with_the_oldest_python_and_dependencies(wheel, python3_10, tmp_path):
    """The lower bounds of pyproject.toml, from the real index; without torch, ray and nvtx."""
    (found,) = re.findall(
        r"^dependencies = (\[[^\]]*\])", (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    oldest = [requirement.replace(">=", "==") for requirement in json.loads(found)]
    environment = Environment(tmp_path / "venv", python3_10)
    tools = ["pytest", "pytest-randomly", "pytest-timeout", "hypothesis"]
    environment.pip("install", *oldest, *tools, wheel, online=True)
    unit = ROOT / "tests" / "unit"
    # These read standard error from click's own test runner, which tells it apart from click 8.2 on.
    ignored = f"--ignore={unit / 'test_cli.py'}"
    cache = f"cache_dir={tmp_path / 'cache'}"
    run(environment.python, "-m", "pytest", "-q", "-o", cache, ignored, unit, cwd=tmp_path)
    command = environment.folder / "bin" / "slime-profiler"
    assert "timeline" in run(command, "config", "list", cwd=tmp_path)
    assert "rollout_000001" in run(command, "merge", write_synthetic_run(tmp_path).folder, cwd=tmp_path)
