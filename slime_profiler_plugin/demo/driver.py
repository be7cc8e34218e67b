"""The demo from one command to a merged timeline."""

from __future__ import annotations

import importlib.util
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

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
from ._proof import SyncProof
from ._settings import Settings, Transport
from .sync import SyncReport

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
    settings: Settings | None = None,
    config: str = "timeline",
    report: Callable[[str], object] = _ignore,
    run_suffix: str = "",
) -> DemoResult:
    """Run the demo and merge what it recorded below `out`.

    `report` gets a line about each thing that happens. `config` is a shipped name, a path, or
    ``off``. `run_suffix` is added to the run's id. Raises `DemoError` when something of the demo fails,
    a weight sync is not proved or the driver cannot record, `ConfigError` and `ValueError` for settings
    that cannot work.
    """
    started = time.monotonic()
    settings = settings or Settings()
    if settings.engines < 1:
        raise ValueError(f"engines is {settings.engines}: at least 1 is needed")
    folder = Path(out).resolve()
    environment = shared_environment(folder, config, run_suffix)
    _need_packages()
    with PeakMemory() as memory, TemporaryDirectory(prefix="spw") as weights_folder:
        report(f"Starting Ray, {_name_actors(settings)} …")
        with changed_environment(environment), recorded_driver() as recording:
            if not recording and environment[SWITCH_VARIABLE] != _OFF:
                # A training run would go on without a record; of the demo it is the whole point.
                raise DemoError(f"nothing can be recorded below {folder}: the warning before this says why")
            with own_cluster(cpus=_count_actors(settings)) as gpus:
                settings = msgspec.structs.replace(
                    settings,
                    device=_choose_device(gpus, _count_gpus(settings)),
                    weights_folder=weights_folder,
                )
                report(f"Training on {'GPUs, nccl' if settings.device == 'cuda' else 'the CPU, gloo'} …")
                loop = run_loop(settings, environment, lambda result: report(describe(result)))
        paths = RunPaths(folder, environment[RUN_ID_VARIABLE])
        merged = table = None
        if recording:
            report("Merging …")
            merged = merge_run([paths.root], "all")
            table = phase_table(read_run([paths.root]), settings.rollouts - 1)
    return DemoResult(
        settings=settings,
        loop=loop,
        run_folder=paths.root if recording else None,
        merged=merged,
        table=table,
        wall_s=time.monotonic() - started,
        peak_bytes=memory.peak_bytes,
    )


def run_transports(
    settings: Settings,
    transports: Sequence[Transport],
    out: str | Path = "runs",
    config: str = "timeline",
    report: Callable[[str], object] = _ignore,
) -> Iterator[DemoResult]:
    """One demo after the other, each as `run_demo` and with its own run, for each of `transports`.

    The ids of several runs end in their transport.
    """
    each = [msgspec.structs.replace(settings, transport=transport) for transport in transports]
    for one in each:
        yield run_demo(out, one, config, report, f"-{one.transport}" if len(each) > 1 else "")


def _name_actors(settings: Settings) -> str:
    kinds = [f"{settings.trainers} trainers", f"{settings.engines} engines"]
    if settings.critic:
        kinds.insert(1, f"{settings.trainers} critics")
    return f"{', '.join(kinds)} and a rollout manager"


def _count_trained(settings: Settings) -> int:
    return settings.trainers * (2 if settings.critic else 1)


def _count_actors(settings: Settings) -> int:
    return _count_trained(settings) + settings.engines + 1


def _count_gpus(settings: Settings) -> int:
    """An engine that is sent weights over ipc shares the GPU of a trainer."""
    return _count_trained(settings) + (0 if settings.transport == "ipc" else settings.engines)


def _need_packages() -> None:
    missing = [name for name in ("torch", "ray", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        raise DemoError(f"the demo needs {' and '.join(missing)}: pip install 'slime-profiler-plugin[demo]'")


def shared_environment(out: Path, config: str, run_suffix: str = "") -> dict[str, str]:
    """The environment by which all processes of one demo record one attempt of one run.

    The run id is the environment's, if it has one, and ends in `run_suffix`. Raises `ConfigError` for a
    configuration that cannot be used, before anything is started.
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
    run_id = os.environ.get(RUN_ID_VARIABLE) or f"demo-{at}-{secrets.token_hex(3)}"
    return {
        SWITCH_VARIABLE: switch,
        OUT_VARIABLE: str(out),
        RUN_ID_VARIABLE: run_id + run_suffix,
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
    name = result.rollout if isinstance(result.rollout, str) else f"rollout {result.rollout}"
    told = []
    if result.mean_reward is not None:
        told.append(f"mean reward {result.mean_reward:+.3f}, {len(result.losses)} steps")
    if result.restarted:
        told.append(f"{' and '.join(result.restarted)} died and came back")
    told.append("no weight sync" if result.proof is None else _describe_proof(result.proof))
    return f"{name}: {'; '.join(told)}"


def _describe_proof(proof: SyncProof) -> str:
    return (
        f"sync {proof.reports[0].sync} {_describe_sent(proof.reports)}; "
        f"proved: {proof.tensors} tensors and {proof.tokens} tokens equal in {proof.models} models"
    )


def _describe_sent(reports: Sequence[SyncReport]) -> str:
    one = reports[0]
    if one.transport == "ipc":
        return f"handed {one.bytes:,} bytes in {one.buckets} buckets to each of {len(reports)} engines"
    size, count = sum(report.bytes for report in reports), sum(report.buckets for report in reports)
    if one.transport == "nccl":
        return f"sent {size:,} bytes in {count} buckets"
    files = f"{count} files of {sum(report.file_bytes for report in reports):,} bytes"
    if one.transport == "disk":
        return f"wrote {size:,} bytes into {files}"
    return f"published {size:,} bytes {'whole' if one.baseline else 'as differences'} in {files}"


def _choose_device(gpus: int, needed: int) -> str:
    """GPUs when each trainer and engine can have one and torch can use them, else the CPU."""
    if gpus < needed:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
