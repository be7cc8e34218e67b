"""Write dev.txt and megatron.txt: every package of each environment, pinned, for Python 3.10 to 3.13.

Needs `uv` beside the interpreter that runs this (``make lock`` sees to it). Index settings come from the
machine's own uv configuration and never reach the files.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# Every package of the {what}, pinned. Written by `make lock`; do not edit.
# The accelerator libraries that a CUDA build of torch names are left out: it needs none,
# and where pip takes such a build it takes them with it.
"""
#: Requirements of torch's CUDA builds.
ACCELERATOR = re.compile(r"(nvidia-|cuda-|triton\b)")


#: Of each environment: what it is, and the extras of the project that it has.
ENVIRONMENTS = {
    "dev": ("development environment", ("record", "demo", "analyze", "tensorboard", "test")),
    "megatron": ("environment of the tests with Megatron-Core", ("record",)),
}


def compile_lock(name: str, extras: tuple[str, ...]) -> str:
    """What uv resolves, for all supported Pythons at once."""
    command = [
        str(Path(sys.executable).with_name("uv")),
        *("pip", "compile", "--universal", "--python-version", "3.10", "--quiet"),
        *("--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"),
        *(argument for extra in extras for argument in ("--extra", extra)),
        *("--upgrade", *sys.argv[1:]),
        *("pyproject.toml", f"requirements/{name}.in"),
    ]
    environment = {**os.environ, "UV_CACHE_DIR": str(ROOT / ".cache" / "uv")}
    result = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return result.stdout


def without_accelerators(lock: str) -> str:
    """`lock` less the requirements of CUDA builds, and without torch's local version label."""
    lines = [line for line in lock.splitlines() if not ACCELERATOR.match(line)]
    return "".join(re.sub(r"^(torch==[\d.]+)\+\w+", r"\1", line) + "\n" for line in lines)


if __name__ == "__main__":
    for name, (what, extras) in ENVIRONMENTS.items():
        lock = without_accelerators(compile_lock(name, extras))
        (ROOT / "requirements" / f"{name}.txt").write_text(HEADER.format(what=what) + lock)
