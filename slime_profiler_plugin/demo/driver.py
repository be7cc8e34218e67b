"""The demo from one command to a merged timeline."""

from __future__ import annotations

import importlib.util
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.analyze import PhaseTable, phase_table
from slime_profiler_plugin.config import OUT_VARIABLE, SWITCH_VARIABLE, load_config
from slime_profiler_plugin.identity import LAUNCH_VARIABLE, RUN_ID_VARIABLE
from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.merge import MergeReport, merge_run
from slime_profiler_plugin.read import read_run

from ._cluster import DemoError, own_cluster
from ._environment import changed_environment
from ._loop import LoopResult, RolloutResult, run_loop
from ._processes import PeakMemory
from ._settings import Settings

_OFF = "off"


class DemoResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a demo did, for whoever shows it.

    With the profiler off there is no `run_folder`, no `merged` and no `table` (of the last
    rollout). `peak_bytes`: see `PeakMemory`.
    """

    settings: Settings
    loop: LoopResult
    run_folder: Path | None
    merged: MergeReport | None
    table: PhaseTable | None
    wall_s: float
    peak_bytes: int | None


def _ignore(_line: str) -> None: ...


def run_demo(
    out: str | Path = "runs",
    rollouts: int = 3,
    trainers: int = 2,
    engines: int = 2,
    config: str = "timeline",
    seed: int = 0,
    report: Callable[[str], object] = _ignore,
) -> DemoResult:
    """Run the demo and merge what it recorded below `out`.

    `report` gets a line about each thing that happens. `config` is a shipped name, a path, or
    ``off``. Raises `DemoError` when something of the demo fails, a weight sync is not proved
    or the driver cannot record, `ConfigError` and `ValueError` for settings that cannot work.
    """
    started = time.monotonic()
    settings = Settings(seed=seed, rollouts=rollouts, trainers=trainers, engines=engines)
    if engines < 1:
        raise ValueError(f"engines is {engines}: at least 1 is needed")
    folder = Path(out).resolve()
    environment = shared_environment(folder, config)
    _need_packages()
    with PeakMemory() as memory:
        report(f"Starting Ray, {trainers} trainers, {engines} engines and a rollout manager …")
        with changed_environment(environment), recorded_driver() as recording:
            if not recording and environment[SWITCH_VARIABLE] != _OFF:
                # A training run would go on without a record; of the demo it is the whole point.
                raise DemoError(f"nothing can be recorded below {folder}: the warning before this says why")
            with own_cluster(cpus=trainers + engines + 1) as gpus:
                settings = msgspec.structs.replace(settings, device=_choose_device(gpus, trainers + engines))
                report(f"Training on {'GPUs, nccl' if settings.device == 'cuda' else 'the CPU, gloo'} …")
                loop = run_loop(settings, environment, lambda result: report(describe(result)))
        paths = RunPaths(folder, environment[RUN_ID_VARIABLE])
        merged = table = None
        if recording:
            report("Merging …")
            merged = merge_run([paths.root], "all")
            table = phase_table(read_run([paths.root]), rollouts - 1)
    return DemoResult(
        settings=settings,
        loop=loop,
        run_folder=paths.root if recording else None,
        merged=merged,
        table=table,
        wall_s=time.monotonic() - started,
        peak_bytes=memory.peak_bytes,
    )


def _need_packages() -> None:
    missing = [name for name in ("torch", "ray") if importlib.util.find_spec(name) is None]
    if missing:
        raise DemoError(f"the demo needs {' and '.join(missing)}: pip install 'slime-profiler-plugin[demo]'")


def shared_environment(out: Path, config: str) -> dict[str, str]:
    """The environment by which all processes of one demo record one attempt of one run.

    The run id is the environment's, if it has one. Raises `ConfigError` for a configuration
    that cannot be used, before anything is started.
    """
    switch = _OFF
    loaded = load_config(config, os.environ)
    if loaded is not None:
        if not loaded.outputs.records:
            raise ValueError(f"{config}: outputs.records is off, and the demo merges what is recorded")
        switch = (
            str(Path(config).resolve()) if "/" in config or config.endswith((".yaml", ".yml")) else config
        )
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return {
        SWITCH_VARIABLE: switch,
        OUT_VARIABLE: str(out),
        RUN_ID_VARIABLE: os.environ.get(RUN_ID_VARIABLE) or f"demo-{at}-{secrets.token_hex(3)}",
        LAUNCH_VARIABLE: f"demo:{secrets.token_hex(8)}",
    }


@contextmanager
def recorded_driver() -> Iterator[bool]:
    """Record this process as the driver, as its environment says; gives whether it records."""
    try:
        yield timeline.start(role="driver", rank=0, world_size=1)
    finally:
        timeline.stop()


def describe(result: RolloutResult) -> str:
    """One line about one turn of the loop."""
    sync, proof = result.proof.sync, result.proof
    trained = ""
    if result.mean_reward is not None:
        trained = f"mean reward {result.mean_reward:+.3f}, {len(result.losses)} steps; "
    name = result.rollout if isinstance(result.rollout, str) else f"rollout {result.rollout}"
    return (
        f"{name}: {trained}sync {sync.sync} sent {sync.bytes:,} bytes in {sync.buckets} buckets; "
        f"proved: {proof.tokens} tokens equal in {proof.models} models, "
        f"every engine's logits moved (by {proof.logit_change:.2f} or more)"
    )


def _choose_device(gpus: int, needed: int) -> str:
    """GPUs when each trainer and engine can have one and torch can use them, else the CPU."""
    if gpus < needed:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


__all__ = ["DemoError", "DemoResult", "describe", "recorded_driver", "run_demo", "shared_environment"]
