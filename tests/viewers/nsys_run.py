"""Runs a program under Nsight Systems and exports what it has recorded, as often as it takes.

Nsight Systems 2022.4 now and then leaves no report, or does not return; then it has left an agent running.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARK = "SLIME_PROFILER_TEST_MARK"
TRIES = 3


def profile(
    nsys: str, program: list[str], new_folder: Callable[[], Path], *, trace: str = "nvtx", limit_s: float = 45
) -> Path:
    """The database that a run of the Python `program` is exported to.

    `program` is given one more argument, the folder ``runs`` beside the database; nsys and export may each
    take `limit_s`. Each try has a folder of its own. Raises `RuntimeError` with all that was said.
    """
    said = []
    for _ in range(TRIES):
        found, words = _try_profile(nsys, program, new_folder(), trace, limit_s)
        if found is not None:
            return found
        said.append(words)
    raise RuntimeError("\n".join(said))


def _try_profile(
    nsys: str, program: list[str], out: Path, trace: str, limit_s: float
) -> tuple[Path | None, str]:
    mark = uuid.uuid4().hex
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tb_plugin", ROOT / "configs")))
    environment = {**os.environ, MARK: mark, "PYTHONPATH": paths, "TMPDIR": str(out)}
    report, database = out / "report.nsys-rep", out / "report.sqlite"
    run = [
        nsys,
        "profile",
        f"--trace={trace}",
        "--sample=none",
        "--cpuctxsw=none",
        f"--output={out / 'report'}",
        sys.executable,
        *program,
        str(out / "runs"),
    ]
    export = [nsys, "export", "--type=sqlite", f"--output={database}", str(report)]
    said = ""
    try:
        for command in (run, export):
            result = subprocess.run(
                command,
                env=environment,
                cwd=out,
                capture_output=True,
                text=True,
                timeout=limit_s,
                check=False,
            )
            said += f"{result.args}\nstatus {result.returncode}\n{result.stdout}\n{result.stderr}\n"
    except subprocess.TimeoutExpired as expired:
        said += f"{expired}\n{expired.stdout}\n{expired.stderr}\n"
    finally:
        _end_marked(mark)
    return (database if database.is_file() else None), said


def _carries(environ: Path, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in environ.read_bytes().split(b"\0")
    except OSError:  # it has ended, or is not ours
        return False


def _end_marked(mark: str) -> None:
    """End the processes that carry `mark`: nsys leaves an agent behind when it is cut short."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        if _carries(environ, mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(environ.parent.name), signal.SIGKILL)
