"""Wheels and virtual environments for the tests of packaging."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SOURCES = (
    "slime_profiler_plugin",
    "tb_plugin",
    "configs",
    "pyproject.toml",
    "setup.cfg",
    "README.md",
    "LICENSE",
)


def run(*command: object, cwd: Path | None = None, online: bool = False) -> str:
    """Standard output of a command that must succeed, without this session's Python settings.

    Offline unless `online`: pip is told to ask no index.
    """
    dropped = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {key: value for key, value in os.environ.items() if key not in dropped}
    if not online:
        environment = {key: value for key, value in environment.items() if not key.startswith("PIP_")}
        environment |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def build_wheel(folder: Path) -> Path:
    """The project's wheel, built offline from a copy of the tree below `folder`."""
    copy = folder / "source"
    copy.mkdir()
    for name in _SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    out = folder / "wheel"
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out, copy)
    (wheel,) = out.glob("*.whl")
    return wheel


def stand_in(folder: Path, name: str, version: str, requires: Sequence[str] = ()) -> Path:
    """A wheel with the metadata of a distribution and one line of code: all that pip's resolver looks at."""
    folder.mkdir(exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"]
    metadata += [f"Requires-Dist: {requirement}\n" for requirement in requires]
    files = {
        f"{module}/__init__.py": f"__version__ = {version!r}\n",
        f"{info}/METADATA": "".join(metadata),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    wheel = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


class Environment:
    """A virtual environment without pip; the pip of this session works on it from outside."""

    def __init__(self, folder: Path, base: Path | str = sys.executable) -> None:
        run(base, "-m", "venv", "--without-pip", folder)
        self.folder = folder
        self.python = folder / "bin" / "python"

    def pip(self, *arguments: object, online: bool = False) -> str:
        """Standard output of a pip command on this environment."""
        pip = (sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check")
        return run(*pip, *arguments, online=online)

    def borrow_dependencies(self) -> None:
        """Make this session's packages importable, less those installed in editable mode.

        Python reads no .pth files of a folder that a .pth file named.
        """
        site = run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        Path(site, "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
