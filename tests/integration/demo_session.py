"""Runs one whole demo, and before its Ray cluster goes, ends recording actors in rough ways.

A process of its own, started by the fixture of that name, so that the tests' own process
never meets Ray. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.demo import driver
from slime_profiler_plugin.demo._processes import ProcessId, list_descendants, wait_until_gone
from slime_profiler_plugin.identity import RUN_ID_VARIABLE

PERIOD_S = 0.5
#: Long enough that something is older than a period when the end comes.
TICKING_S = 3 * PERIOD_S


class Ticker:
    """Records one phase per call, when its environment says so."""

    def __init__(self) -> None:
        self.records = timeline.start(role="reward", rank=0)

    def about(self) -> tuple[bool, int]:
        return self.records, os.getpid()

    def tick(self, number: int) -> int:
        """Number of ns on the monotonic clock when the phase had ended."""
        with timeline.phase("reward", step=number):
            pass
        return time.monotonic_ns()


def start_ticker(environment: dict[str, str]) -> Any:
    import ray

    return ray.remote(num_cpus=0, runtime_env={"env_vars": environment})(Ticker).remote()


def find(pid: int) -> ProcessId:
    (found,) = [p for p in list_descendants(os.getpid()) if p.pid == pid]
    return found


def tick_for(actor: Any, seconds: float) -> list[int]:
    """Ends of the phases, the actor's tick number being the place in the list."""
    import ray

    ends = [ray.get(actor.tick.remote(0))]
    while ends[-1] - ends[0] < seconds * 1e9:
        ends.append(ray.get(actor.tick.remote(len(ends))))
    return ends


def ray_kill(environment: dict[str, str]) -> dict[str, Any]:
    import ray

    actor = start_ticker(environment)
    _, pid = ray.get(actor.about.remote())
    process = find(pid)
    ends = tick_for(actor, TICKING_S)
    ended_ns = time.monotonic_ns()
    ray.kill(actor)
    wait_until_gone([process], 30)
    return {"ends": ends, "ended_ns": ended_ns}


def sigterm(environment: dict[str, str]) -> dict[str, Any]:
    import ray

    actor = start_ticker(environment)
    _, pid = ray.get(actor.about.remote())
    process = find(pid)
    ends = tick_for(actor, 0.1)
    os.kill(pid, signal.SIGTERM)
    wait_until_gone([process], 30)
    try:
        ray.get(actor.tick.remote(0))
    except ray.exceptions.RayActorError as error:
        # What Ray says of the end, without what differs between any two actors.
        told = re.sub(r"\b[0-9a-f]{8,}\b|\d{3,}", "…", str(error))
    return {"ends": ends, "told": told}


def job_end(environment: dict[str, str], address: str) -> dict[str, Any]:
    """Another job on this cluster, whose driver simply ends."""
    arguments = [sys.executable, __file__, "job", address]
    done = subprocess.run(
        arguments, env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=90
    )
    told = json.loads(done.stdout.splitlines()[-1])
    pid = told.pop("pid")
    wait_until_gone([p for p in list_descendants(os.getpid()) if p.pid == pid], 30)
    return told


def run_job(address: str) -> None:
    import ray

    ray.init(address=address, log_to_driver=False)
    actor = start_ticker({n: v for n, v in os.environ.items() if n.startswith("SLIME_")})
    _, pid = ray.get(actor.about.remote())
    ends = tick_for(actor, TICKING_S)
    sys.stdout.write(json.dumps({"pid": pid, "ends": ends, "ended_ns": time.monotonic_ns()}) + "\n")


def end_actors(out: Path, config: str) -> dict[str, Any]:
    """Each way to end an actor, with the run it recorded."""
    import ray

    address = ray.get_runtime_context().gcs_address
    told = {"sigterm_off": sigterm({"SLIME_PROFILER": "off"})}
    for name, end in (
        ("ray_kill", ray_kill),
        ("sigterm", sigterm),
        ("job_end", lambda environment: job_end(environment, address)),
    ):
        environment = driver.shared_environment(out / name, config)
        told[name] = end(environment)
        told[name]["run_folder"] = str(out / name / environment[RUN_ID_VARIABLE])
    return told


def main(out: Path) -> None:
    config = out / "fast.yaml"
    config.write_text(f"records: {{period_s: {PERIOD_S}}}\n")
    told: dict[str, Any] = {}
    run_loop = driver.run_loop

    def run_loop_then_end_actors(*arguments: Any) -> Any:
        result = run_loop(*arguments)
        told.update(end_actors(out, str(config)))
        return result

    driver.run_loop = run_loop_then_end_actors
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="sps", dir="/tmp") as scratch:
        tempfile.tempdir = scratch
        result = driver.run_demo(out / "runs", report=lines.append)
        left_behind = os.listdir(scratch)
    told |= {
        "lines": lines,
        "run_folder": str(result.run_folder),
        "training": [
            {"rollout": r.rollout, "mean_reward": r.mean_reward, "losses": r.losses}
            for r in result.loop.rollouts
        ],
        "model_bytes": result.loop.model_bytes,
        "peak_bytes": result.peak_bytes,
        "left_running": len(list_descendants(os.getpid())),
        "left_behind": left_behind,
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "job":
        run_job(sys.argv[2])
    else:
        main(Path(sys.argv[1]))
