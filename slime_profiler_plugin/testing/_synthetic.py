"""A whole made-up run: a driver, trainer ranks, engines, a weight sync after every rollout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from slime_profiler_plugin.layout import RunPaths

from ._process_file import ProcessFile

MS: Final = 1_000_000
#: How long a rollout lasts, and where in it training and the sync begin.
_ROLLOUT_NS: Final = 1000 * MS
_TRAIN_NS: Final = 400 * MS
_SYNC_NS: Final = 700 * MS
_BUCKET_NS: Final = 20 * MS
_BUCKET_BYTES: Final = 4096
_FIRST_TRAINER_PID: Final = 200
#: Of up to a hundred trainers; of more, the number after theirs.
_FIRST_ENGINE_PID: Final = 300
#: Unix time at which the made-up machine was started.
_EPOCH_NS: Final = 1_794_995_000 * 1000 * MS


class SyntheticRun(NamedTuple):
    """What was written: the run's folder and the processes, whose lines are the right values."""

    folder: Path
    run_id: str
    driver: ProcessFile
    trainers: list[ProcessFile]
    engines: list[ProcessFile]

    @property
    def processes(self) -> list[ProcessFile]:
        """All of them, driver first."""
        return [self.driver, *self.trainers, *self.engines]


def write_synthetic_run(
    out: Path | str,
    *,
    run_id: str = "synthetic",
    trainers: int = 2,
    engines: int = 2,
    rollouts: int = 2,
    steps: int = 2,
    buckets: int = 3,
    attempt: int = 0,
    start_ns: int = 5_000_000 * MS,
    engine_host_offset_ns: int | None = None,
) -> SyntheticRun:
    """Write a clean run under `out` and return what it holds.

    Each rollout lasts a second: the driver waits in ``generate`` for 400 ms, every trainer does
    `steps` steps, and trainer 0 sends `buckets` buckets of 4096 bytes to each engine. A sync of
    the same shape, ``initial``, comes first. `start_ns` is when the driver starts. With
    `engine_host_offset_ns` the engines run on another host, whose monotonic clock is ahead by so
    much and whose wall clock is right.
    """
    shared: dict[str, Any] = {"attempt": attempt, "epoch_ns": _EPOCH_NS, "start_ns": start_ns}
    driver = ProcessFile(run_id, pid=100, role="driver", **shared)
    ranks = [
        ProcessFile(
            run_id,
            pid=_FIRST_TRAINER_PID + rank,
            role="actor",
            rank=rank,
            ranks={"tp": 0, "pp": 0, "dp": rank},
            world_size=trainers,
            **shared,
        )
        for rank in range(trainers)
    ]
    offset = engine_host_offset_ns or 0
    remote: dict[str, Any] = (
        {} if engine_host_offset_ns is None else {"host": "host1", "clock_domain": "boot1"}
    )
    servers = [
        ProcessFile(
            run_id,
            pid=max(_FIRST_ENGINE_PID, _FIRST_TRAINER_PID + trainers) + index,
            role="engine",
            rank=index,
            engine={"index": index},
            world_size=engines,
            attempt=attempt,
            epoch_ns=_EPOCH_NS - offset,
            start_ns=start_ns + offset,
            **remote,
        )
        for index in range(engines)
    ]
    at = start_ns + 10 * MS
    _add_sync(ranks, servers, at, offset, "initial", 0, buckets)
    at += 300 * MS
    for rollout in range(rollouts):
        driver.phase("generate", at, at + _TRAIN_NS - 10 * MS, rollout=rollout)
        for rank in ranks:
            _add_steps(rank, at + _TRAIN_NS, rollout, steps)
        _add_sync(ranks, servers, at + _SYNC_NS, offset, rollout, rollout + 1, buckets)
        at += _ROLLOUT_NS
    for process in [*ranks, driver]:
        process.end(at)
    for process in servers:
        process.end(at + offset)
    run = SyntheticRun(RunPaths(out, run_id).root, run_id, driver, ranks, servers)
    for process in run.processes:
        process.write(out)
    _write_run_files(run, attempt)
    return run


def _add_steps(rank: ProcessFile, at: int, rollout: int, steps: int) -> None:
    length = 250 * MS // max(steps, 1)
    for step in range(steps):
        begin = at + step * length
        fields: dict[str, Any] = {"rollout": rollout, "step": step}
        whole = rank.phase("train_step", begin, begin + length - MS, **fields)
        split = begin + length * 3 // 4
        inner = rank.phase("forward_backward", begin + 1000, split, parent=whole, **fields)
        rank.phase("grad_sync", split - length // 4, split - 1000, parent=inner, **fields)
        rank.phase("optimizer", split, begin + length - 2 * MS, parent=whole, **fields)
    rank.clock(at)


def _add_sync(
    ranks: list[ProcessFile],
    servers: list[ProcessFile],
    at: int,
    offset: int,
    rollout: int | str,
    sync: int,
    buckets: int,
) -> None:
    sender = ranks[0]
    version = str(sync)
    key: dict[str, Any] = {"sync": sync, "source": sender.source, "weight_version": version}
    for rank in ranks:
        whole = rank.phase(
            "weight_sync", at, at + 200 * MS, rollout=rollout, sync=sync, weight_version=version
        )
        rank.phase("barrier", at + 190 * MS, at + 199 * MS, rollout=rollout, sync=sync, parent=whole)
    for bucket in range(buckets):
        begin = at + MS + bucket * _BUCKET_NS
        size: dict[str, Any] = {"bucket": bucket, "bytes": _BUCKET_BYTES, "tensors": 2, "transport": "nccl"}
        sender.phase("bucket_send", begin, begin + 10 * MS, rollout=rollout, **key, **size)
        for server in servers:
            received = begin + offset
            server.phase("engine_receive", received + 500_000, received + 12 * MS, **key, **size)
            server.phase("engine_load", received + 12 * MS, received + 13 * MS, **key, **size)


def _write_run_files(run: SyntheticRun, attempt: int) -> None:
    paths = RunPaths.at(run.folder)
    created = run.driver.process.start_unix_ns
    about = {"run_id": run.run_id, "origin": "given", "created_unix_ns": created}
    paths.run_file.write_text(json.dumps(about))
    start = {
        "attempt": attempt,
        "launch": f"launch-{attempt}",
        "created_unix_ns": created,
        "host": run.driver.process.host,
        "pid": run.driver.process.pid,
    }
    paths.attempt_file(attempt).write_text(json.dumps(start))
