"""Real torchrun jobs on the loopback: one run folder each, attempts, and a file per process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from recordings import read_file

from slime_profiler_plugin import schema
from slime_profiler_plugin.identity import RUN_ID_VARIABLE, read_attempt, read_run

pytest.importorskip("torch", reason="torchrun comes with torch")

ROOT = Path(__file__).resolve().parents[2]
RANKS = 4
#: One rank, recording one phase. Fails at its first start if it is told to.
WORKER = """
import os, sys
from slime_profiler_plugin import timeline

assert timeline.start({"out": sys.argv[1], "outputs": {"nvtx": False}}, role="actor")
with timeline.phase("train_step"):
    pass
timeline.stop()
assert not {"torch", "ray", "nvtx"} & set(sys.modules)
restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
if "--fail-first" in sys.argv and restart == "0" and os.environ["RANK"] == "1":
    sys.exit(1)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def torchrun(
    tmp_path: Path, *worker_options: str, environ: dict[str, str] | None = None, options: tuple[str, ...] = ()
) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLIME_PROFILER", "SLURM", "RAY_"))}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(RANKS)]
    command += [f"--master_port={free_port()}", "--master_addr=127.0.0.1", *options]
    command += [str(script), str(tmp_path / "runs"), *worker_options]
    finished = subprocess.run(
        command,
        env=clean | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | (environ or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout


def run_folders(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "runs").iterdir())


def processes_of(run: Path, phases: tuple[int, ...] = (1,)) -> list[schema.Process]:
    """Who wrote the record files: each file by one process, with its own phase and nobody else's.

    `phases`: how many a process may have; one that was ended early may not have come to its own.
    """
    processes = []
    for file in sorted(run.glob("records/*/*.jsonl")):
        lines = read_file(file)
        process = lines[0]
        assert process.incarnation == file.stem
        assert sum(isinstance(line, schema.Process) for line in lines) == 1
        assert sum(isinstance(line, schema.Phase) for line in lines) in phases
        assert isinstance(lines[-1], schema.End)
        processes.append(process)
    return processes


def test_four_ranks_without_a_driver_are_one_run(tmp_path: Path) -> None:
    torchrun(tmp_path)
    (run,) = run_folders(tmp_path)
    told = processes_of(run)
    assert sorted(one.rank for one in told) == [0, 1, 2, 3]
    assert {(one.run_id, one.attempt, one.world_size) for one in told} == {(run.name, 0, RANKS)}
    assert read_run(run / "run.json").origin == "torchelastic"
    assert [file.name for file in run.glob("attempt-*.json")] == ["attempt-000.json"]


def test_one_run_id_started_twice_is_two_attempts(tmp_path: Path) -> None:
    for _ in range(2):
        torchrun(tmp_path, environ={RUN_ID_VARIABLE: "nightly"})
    (run,) = run_folders(tmp_path)
    assert run.name == "nightly"
    told = processes_of(run)
    expected = [(attempt, rank) for attempt in (0, 1) for rank in range(RANKS)]
    assert sorted((one.attempt, one.rank) for one in told) == expected
    launches = {read_attempt(file).launch for file in run.glob("attempt-*.json")}
    assert len(launches) == 2


def test_two_unrelated_jobs_are_two_runs(tmp_path: Path) -> None:
    for _ in range(2):
        torchrun(tmp_path)
    first, second = run_folders(tmp_path)
    assert len(processes_of(first)) == len(processes_of(second)) == RANKS


def test_a_restart_within_an_attempt_adds_incarnations(tmp_path: Path) -> None:
    torchrun(tmp_path, "--fail-first", options=("--max-restarts=1",))
    (run,) = run_folders(tmp_path)
    told = processes_of(run, phases=(0, 1))
    assert {one.attempt for one in told} == {0}
    assert [one.rank for one in told].count(1) == 2
    assert len({one.incarnation for one in told}) == len(told)


def test_ranks_behind_a_shell_still_share_their_run(tmp_path: Path) -> None:
    shell = tmp_path / "rank.sh"
    shell.write_text(f'{sys.executable} "$@"\nexit $?\n')
    torchrun(tmp_path, options=("--no-python", "bash", str(shell)))
    (run,) = run_folders(tmp_path)
    assert len(processes_of(run)) == RANKS
