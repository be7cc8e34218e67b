"""Runs `train.py` under torchrun in the environment with Megatron-Core, and reads what it wrote."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from recordings import ROOT, Recording, environment, read_file, record_files

from slime_profiler_plugin.attach._environment import prepend_folder

HERE = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".cache" / "venvs" / "megatron"


def find_environment() -> Path:
    """The folder of its programs; skips where it was not built, or from another lock file."""
    lock = hashlib.sha256((ROOT / "requirements" / "megatron.txt").read_bytes()).hexdigest()
    built = ENVIRONMENT / ".lock"
    if not built.is_file() or built.read_text().strip() != lock:
        pytest.skip("the environment with Megatron-Core is not there: run `make megatron`")
    return ENVIRONMENT / "bin"


def megatron_environment(**more: str) -> dict[str, str]:
    """Of a program that runs Megatron on this machine: one thread, loopback only, our package."""
    quiet = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "GLOO_SOCKET_IFNAME": "lo"}
    return {**environment(), **quiet, **more}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def train(out: Path, *cases: dict[str, Any], autoload: bool = False) -> None:
    """All cases, two ranks each; what they wrote lies in ``out/<name>``.

    `autoload`: our folder is first on the path, but nothing switches recording on.
    """
    environ = megatron_environment()
    if autoload:
        environ["PYTHONPATH"] = prepend_folder(environ["PYTHONPATH"])
    command = [
        *(str(find_environment() / "python"), "-m", "torch.distributed.run", "--nproc_per_node=2"),
        *("--master_addr=127.0.0.1", f"--master_port={free_port()}"),
        *(str(HERE / "train.py"), str(out), *map(json.dumps, cases)),
    ]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def told(out: Path, name: str, rank: int) -> dict[str, Any]:
    """What a rank of a case says it did."""
    answer: dict[str, Any] = json.loads((out / name / f"rank{rank}.json").read_text())
    return answer


def recordings(out: Path, name: str) -> dict[int, Recording]:
    """What the ranks of a case recorded, by rank."""
    found = {}
    for file in record_files(out / name):
        recording = Recording(read_file(file))
        recording.check_counts()
        ranks = {line.rank for line in recording.lines if getattr(line, "rank", None) is not None}
        (rank,) = ranks
        assert rank not in found
        found[rank] = recording
    return found


def outline(recording: Recording) -> list[str]:
    """Names of the phases as they began, each indented below its parent; with the timer, where noted."""
    depths: dict[int, int] = {}
    lines = []
    for phase in sorted(recording.phases, key=lambda phase: phase.id):
        depth = depths[phase.id] = 0 if phase.parent is None else depths[phase.parent] + 1
        timer = (phase.attrs or {}).get("timer")
        lines.append("  " * depth + phase.name + (f" {timer}" if timer else ""))
    return lines
