"""Write dev.txt: every package of the development environment, pinned, for Python 3.10 to 3.13.

Needs `uv` beside the interpreter that runs this (``make lock`` sees to it). Index settings come from the
machine's own uv configuration and never reach the file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# Every package of the development environment, pinned. Written by `make lock`; do not edit.
# The accelerator libraries that a CUDA build of torch names are left out: development needs none,
# and where pip takes such a build it takes them with it.
"""
#: Requirements of torch's CUDA builds.
ACCELERATOR = re.compile(r"(nvidia-|cuda-|triton\b)")


def compile_lock() -> str:
    """What uv resolves, for all supported Pythons at once."""
    command = [
        str(Path(sys.executable).with_name("uv")),
        *("pip", "compile", "--universal", "--python-version", "3.10", "--quiet"),
        *("--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"),
        *("--extra", "record", "--extra", "analyze", "--extra", "demo", "--extra", "test"),
        *("--upgrade", *sys.argv[1:]),
        *("pyproject.toml", "requirements/dev.in"),
    ]
    environment = {**os.environ, "UV_CACHE_DIR": str(ROOT / ".cache" / "uv")}
    result = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return result.stdout


def without_accelerators(lock: str) -> str:
    """`lock` less the requirements of CUDA builds, and without torch's local version label."""
    lines = [line for line in lock.splitlines() if not ACCELERATOR.match(line)]
    return "".join(re.sub(r"^(torch==[\d.]+)\+\w+", r"\1", line) + "\n" for line in lines)


if __name__ == "__main__":
    (ROOT / "requirements" / "dev.txt").write_text(HEADER + without_accelerators(compile_lock()))
