"""Starts a real SGLang engine on this machine's CPU, and the trainer that gives it weights."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from recordings import ROOT, environment

HERE = Path(__file__).resolve().parent
SHARED = Path(os.environ.get("SLIME_PROFILER_SHARED", ROOT.parent / "shared"))
#: A tiny model and stand-ins for what SGLang imports and a CPU does not use.
HARNESS = SHARED / "harness" / "sglang_cpu"
START_S = 600
LAST_PORT = 65_535
#: One after the other in one process: what they import takes longer than they do.
MAKE = """
import runpy, sys
script, *folders = sys.argv[1:]
for seed, folder in enumerate(folders):
    sys.argv = [script, folder, str(seed)]
    runpy.run_path(script)
"""
CONFIG = """
out: {out}
profiler:
  roles: [engine]
  activities: [cpu]
  schedule: {{skip_first: 2, repeat: 1}}
  engine: {{num_steps: 8}}
"""


class Edition(NamedTuple):
    """One version of SGLang: the lock of its environment, and what it is told otherwise than others.

    `has_sessions`: it takes broadcasts and tensors between two calls only. `stand_ins`: folders of modules in
    the place of those that it imports and a CPU has not.
    """

    version: str
    lock: str
    target: str
    arguments: tuple[str, ...]
    has_sessions: bool = False
    stand_ins: tuple[str, ...] = ()


PINNED = Edition("0.5.15.post1", "sglang.txt", "sglang", ("--disable-cuda-graph",))
NEWEST = Edition(
    "0.5.23",
    "sglang-newest.txt",
    "sglang-newest",
    ("--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled"),
    has_sessions=True,
    stand_ins=(str(HERE / "stand_ins"),),
)


def find_python(edition: Edition) -> Path:
    """The interpreter with SGLang; skips where there is none, or one of another lock."""
    lock = hashlib.sha256((ROOT / "requirements" / edition.lock).read_bytes()).hexdigest()[:12]
    folder = ROOT / ".cache" / "venvs" / f"{edition.target}-{lock}"
    if not (folder / ".ready").is_file():
        pytest.skip(f"the environment with SGLang is not there: run `make {edition.target}`")
    if not HARNESS.is_dir():
        pytest.skip("no harness/sglang_cpu in the folder that SLIME_PROFILER_SHARED names")
    return folder / "bin" / "python"


def free_port() -> int:
    """One whose number an engine can add 10,000 to, for a port of its own."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port <= LAST_PORT - 10_000:
            return port


def install_entry_point(folder: Path) -> Path:
    """A folder for the path of Python in which our entry points are as pyproject.toml has them."""
    tomllib = pytest.importorskip("tomllib")
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    text = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in groups.items()
    )
    info = folder / "slime_profiler_plugin-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slime-profiler-plugin\nVersion: 0\n")
    (info / "entry_points.txt").write_text(text)
    return folder


def engine_environment(edition: Edition, folder: Path, **more: str) -> dict[str, str]:
    """Of the engine and of the trainer: our package, our entry point, one thread, loopback only."""
    base = environment()
    stand_ins = (str(HARNESS / "stubs"), *edition.stand_ins)
    path = os.pathsep.join([str(folder / "installed"), *stand_ins, base["PYTHONPATH"]])
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    cpu = {"SGLANG_USE_CPU_ENGINE": "1", "GLOO_SOCKET_IFNAME": "lo", "SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
    # What was compiled when the environment was built; without it each process compiles thousands of files.
    compiled = {"PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "pycache")}
    base.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**base, "PYTHONPATH": path, **quiet, **cpu, **compiled, **more}


@contextlib.contextmanager
def engine(
    edition: Edition, python: Path, model: Path, size: int, log: Path, environ: dict[str, str]
) -> Iterator[str]:
    """The URL of an engine of `size` ranks that answers."""
    port = free_port()
    bind = environ if size > 1 else {k: v for k, v in environ.items() if k != "SGLANG_CPU_OMP_THREADS_BIND"}
    command = [
        *(str(python), "-m", "sglang.launch_server", "--model-path", str(model), "--device", "cpu"),
        *(
            "--attention-backend",
            "torch_native",
            "--sampling-backend",
            "pytorch",
            "--grammar-backend",
            "none",
        ),
        *(*edition.arguments, "--disable-overlap-schedule", "--disable-radix-cache"),
        *("--dtype", "bfloat16", "--mem-fraction-static", "0.5", "--max-total-tokens", "4096"),
        *("--max-running-requests", "8", "--context-length", "256", "--skip-server-warmup"),
        *("--host", "127.0.0.1", "--port", str(port), "--tp", str(size)),
    ]
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, env=bind, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url, server, log)
        yield url
    finally:
        _end(server)


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        assert server.poll() is None, log.read_text()[-4000:]
        with contextlib.suppress(urllib.error.URLError, TimeoutError, ConnectionError):
            if opener.open(f"{url}/health", timeout=5).status == 200:
                return
        time.sleep(0.5)
    raise AssertionError(f"no engine after {START_S} s:\n{log.read_text()[-4000:]}")


def _end(server: subprocess.Popen[bytes]) -> None:
    """The server and its schedulers, which are in a session of their own."""
    server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(20)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait(20)


def run_trainer(python: Path, models: Path, environ: dict[str, str], *arguments: str) -> dict[str, Any]:
    """What the program `arguments` of this folder tells, when it is told its own arguments."""
    command = [str(python), str(HERE / arguments[0]), *arguments[1:]]
    log = models / "trainer.log"
    # Into files: a daemon that shares the tensors' memory inherits a pipe, and would hold it open.
    with log.open("wb") as errors, (models / "trainer.json").open("wb") as output:
        done = subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            timeout=START_S,
            check=False,
        )
    assert done.returncode == 0, log.read_text()[-4000:]
    told: dict[str, Any] = json.loads((models / "trainer.json").read_text().splitlines()[-1])
    return told


def make_models(python: Path, folder: Path) -> None:
    """Two tiny models, ``a`` and ``b``, of one shape."""
    command = [str(python), "-c", MAKE, str(HARNESS / "mkmodel.py"), str(folder / "a"), str(folder / "b")]
    made = subprocess.run(
        command,
        env=engine_environment(PINNED, folder),
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert made.returncode == 0, made.stderr[-4000:]
