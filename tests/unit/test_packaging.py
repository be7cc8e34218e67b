"""setup.cfg spells out packages and data; these tests hold it against the tree."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Where each top-level package lies.
ROOTS = {
    "slime_profiler_plugin": ROOT / "slime_profiler_plugin",
    "slime_tb_plugin": ROOT / "tb_plugin" / "slime_tb_plugin",
    "slime_profiler_configs": ROOT / "configs",
}
#: Files in a package's folder that are neither modules nor shipped.
NOT_SHIPPED = {"__pycache__", "README.md"}


def _setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def _packages_in_tree() -> dict[str, Path]:
    found = {}
    for name, folder in ROOTS.items():
        for init in sorted(folder.rglob("__init__.py")):
            parts = init.parent.relative_to(folder).parts
            found[".".join((name, *parts))] = init.parent
    return found


def _data_in_tree(packages: dict[str, Path]) -> set[tuple[str, str]]:
    """(package, path below it) of every file that is no module of a package; it belongs to the nearest."""
    owners = {folder: name for name, folder in packages.items()}
    data = set()
    for root in ROOTS.values():
        for path in root.rglob("*"):
            is_module = path.suffix == ".py" and path.parent in owners
            if not path.is_file() or is_module or NOT_SHIPPED & set(path.parts):
                continue
            folder = next(parent for parent in path.parents if parent in owners)
            data.add((owners[folder], path.relative_to(folder).as_posix()))
    return data


def test_every_package_of_the_tree_is_listed_once():
    listed = _lines(_setup_cfg()["options"]["packages"])
    assert sorted(listed) == sorted(_packages_in_tree())


def test_package_dir_names_each_root():
    entries = _lines(_setup_cfg()["options"]["package_dir"])
    assert dict(re.split(r"\s*=\s*", entry) for entry in entries) == {
        name: folder.relative_to(ROOT).as_posix() for name, folder in ROOTS.items()
    }


def test_every_data_file_of_the_tree_is_listed():
    packages = _packages_in_tree()
    listed = {
        (package, file.relative_to(packages[package]).as_posix())
        for package, patterns in _setup_cfg()["options.package_data"].items()
        for pattern in re.split(r"[,\s]+", patterns.strip())
        for file in packages[package].glob(pattern)
    }
    assert listed == _data_in_tree(packages)


def test_no_data_pattern_matches_nothing():
    packages = _packages_in_tree()
    for package, patterns in _setup_cfg()["options.package_data"].items():
        for pattern in re.split(r"[,\s]+", patterns.strip()):
            assert list(packages[package].glob(pattern)), f"{package}: {pattern}"


@pytest.mark.parametrize("extra", ["", "record", "analyze", "open"])
def test_what_a_training_image_installs_names_no_framework(extra):
    text = (ROOT / "pyproject.toml").read_text()
    key = extra if extra else "dependencies"
    (found,) = re.findall(rf"^{key} = (\[[^\]]*\])", text, re.MULTILINE)
    names = {
        re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower()
        for requirement in re.findall(r'"([^"]+)"', found)
    }
    assert names
    assert not names & {"torch", "ray", "sglang", "megatron", "megatron-core"}


def test_no_dependency_is_bounded_above():
    text = (ROOT / "pyproject.toml").read_text()
    (found,) = re.findall(r"^dependencies = (\[[^\]]*\])", text, re.MULTILINE)
    for requirement in re.findall(r'"([^"]+)"', found):
        assert re.fullmatch(r"[A-Za-z0-9-]+>=[\d.]+", requirement), requirement


def test_lock_pins_every_line_and_names_no_index():
    for line in (ROOT / "requirements" / "dev.txt").read_text().splitlines():
        if not line.startswith("#"):
            assert re.match(r"[a-z0-9._-]+==[^\s;]+( ; .+)?$", line), line


def test_lock_takes_the_torch_build_that_development_uses():
    lines = (ROOT / "requirements" / "dev.txt").read_text().splitlines()
    assert [line for line in lines if line.startswith("torch==")] == ["torch==2.13.0"]
    assert not [line for line in lines if line.startswith(("nvidia-", "cuda-", "triton"))]
