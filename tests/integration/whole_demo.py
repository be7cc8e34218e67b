"""Runs one whole demo, whose actors may have something done to them first, and tells what it gave.

A process of its own, so that the tests' own process never meets Ray: `run` starts it with one
JSON object as its argument; it prints another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import faulty_actors
import msgspec

from slime_profiler_plugin.demo import DemoError, Settings, _fleet, _loop, driver

ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 280


def run(
    out: Path,
    config: str | dict[str, Any],
    fault: str | None = None,
    environment: dict[str, str] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Run a demo of those `Settings`, with one engine unless they say more, and return what it told.

    `fault` names a function of `faulty_actors`, called in every actor before it records.
    `environment` is added to that of the actors alone. What they warned of is found in
    ``logs/<role>-<rank>.log``.
    """
    out.mkdir(parents=True, exist_ok=True)
    if isinstance(config, dict):
        path = out / "config.yaml"
        path.write_text(json.dumps(config))  # JSON is YAML
        config = str(path)
    (out / "logs").mkdir()
    arguments = {
        "out": str(out),
        "config": config,
        "settings": {"engines": 1, **settings},
        "fault": fault,
        "environment": environment or {},
    }
    paths = [str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("SLIME_", "RAY_", "TORCHELASTIC"))}
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(arguments)],
        check=False,
        env={**kept, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def warnings_of(out: Path) -> dict[str, list[str]]:
    """What the plugin's logger was told at warning level and above, by actor: ``actor-0``."""
    return {path.stem: path.read_text().splitlines() for path in sorted((out / "logs").iterdir())}


def _main(arguments: dict[str, Any]) -> dict[str, Any]:
    out = Path(arguments["out"])
    _fleet.TrainerActor = faulty_actors.Trainer  # type: ignore[misc]
    _fleet.EngineActor = faulty_actors.Engine  # type: ignore[misc]
    _fleet.RolloutManagerActor = faulty_actors.Manager  # type: ignore[misc]
    added = {
        **arguments["environment"],
        faulty_actors.OUT: str(out),
        faulty_actors.FAULT: arguments["fault"] or "",
    }
    run_loop, tokens = driver.run_loop, []

    class NotingFleet(_fleet.Fleet):
        def probe_trainers(self) -> Any:
            probes = super().probe_trainers()
            tokens.append(probes[0].tokens)
            return probes

    _loop.Fleet = NotingFleet  # type: ignore[misc]
    driver.run_loop = lambda settings, environment, done: run_loop(settings, {**environment, **added}, done)
    tempfile.tempdir = tempfile.mkdtemp(prefix="sp", dir="/tmp")
    try:
        result = driver.run_demo(out / "runs", Settings(**arguments["settings"]), arguments["config"])
    except DemoError as error:
        return {"failed": str(error)}
    finally:
        os.rmdir(tempfile.tempdir)
    return {
        "run_folder": str(result.run_folder),
        "model_bytes": result.loop.model_bytes,
        "syncs": [
            [] if each.proof is None else msgspec.to_builtins(each.proof.reports)
            for each in result.loop.rollouts
        ],
        "log": msgspec.to_builtins(result.loop.log),
        "exit_code": None if result.merged is None else result.merged.exit_code(),
        "training": [
            {
                "rollout": each.rollout,
                "mean_reward": each.mean_reward,
                "losses": each.losses,
                "logit_change": each.proof.logit_change,
                "tokens": drawn,
            }
            for each, drawn in zip((r for r in result.loop.rollouts if r.proof), tokens, strict=True)
        ],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_main(json.loads(sys.argv[1]))) + "\n")
