"""Surroundings of made-up processes, for the tests of identity."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from slime_profiler_plugin.clock import ClockPair
from slime_profiler_plugin.identity import Surroundings

UNIX_NS = 1_800_000_000_123_456_789
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_ERROR_FILE": "/tmp/agent/none/attempt_0/1/error.json",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29511",
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_WORLD_SIZE": "1",
}


def make_process(proc: Path, pid: int, *, parent: int, start: int, environ: dict[str, str]) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    fields = ["S", str(parent), *["0"] * 17, str(start), *["0"] * 30]
    (folder / "stat").write_text(f"{pid} (a) name (with) {' '.join(fields)}\n")
    (folder / "environ").write_bytes(b"".join(f"{k}={v}\0".encode() for k, v in environ.items()))


def make_proc(tmp_path: Path, boot: str = "b00tb00t-1111") -> Path:
    proc = tmp_path / "proc"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text(f"{boot}\n")
    return proc


def surroundings(environ: dict[str, str] | None = None, **changes: Any) -> Surroundings:
    settings: dict[str, Any] = {
        "environ": environ or {},
        "pid": 101,
        "parent_pid": 100,
        "hostname": "node7",
        "proc": Path("/nowhere"),
        "modules": {},
        "read_pair": lambda: ClockPair(5, UNIX_NS, 1),
        "read_clock_domain": lambda: "boot/time",
        "mint": lambda: "0123456789abcdef",
    }
    return Surroundings(**(settings | changes))


def ray_module(session: str | None = "session_1", job: str = "01000000", *, new: bool = True) -> Any:
    node = None if session is None else SimpleNamespace(session_name=session)
    context = SimpleNamespace(get_job_id=lambda: job, worker=SimpleNamespace(node=node))
    if new:
        context.get_session_name = lambda: context.worker.node.session_name
    return SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context)
