"""A made-up run whose tables are known beforehand: a straggler, a sync that is hidden and one that is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.testing import ProcessFile

MS: Final = 1_000_000
RANKS: Final = 4
ROLLOUTS: Final = 6
#: Takes twice as long as its peers, in every rollout.
STRAGGLER: Final = 2
#: Becomes four times as slow in the last rollout.
TIRED: Final = 3
#: Rollout that takes a second longer than the others.
LONG: Final = 4
BUCKET_BYTES: Final = 50_000_000
#: Every rollout begins so long after the one before.
TURN_MS: Final = 10_000


def backward_ms(rank: int, rollout: int) -> int:
    """How long ``backward`` takes."""
    if rank == STRAGGLER:
        return 200
    return 400 if rank == TIRED and rollout == ROLLOUTS - 1 else 100


def write_planted_run(out: Path) -> Path:
    """Write it below `out`; its folder is returned.

    In each rollout: generate 0 to 400 ms (the longer one to 1400), train 400 ms from there, then a sync of
    100 ms with 2 buckets to 2 engines. Under the sync of odd rollouts, another ``generate`` runs in its first
    60 ms.
    """
    driver = ProcessFile("planted", pid=1, role="driver")
    ranks = [
        ProcessFile(
            "planted", pid=10 + r, role="actor", rank=r, ranks={"tp": r % 2, "pp": 0}, world_size=RANKS
        )
        for r in range(RANKS)
    ]
    # On another host, whose monotonic clock is ahead by five seconds.
    ahead = 5_000 * MS
    engines = [
        ProcessFile(
            "planted",
            pid=50 + e,
            role="engine",
            rank=e,
            engine={"index": e},
            host="host1",
            clock_domain="boot1",
            epoch_ns=1_795_000_000 * 10**9 - ahead,
            start_ns=ahead,
        )
        for e in range(2)
    ]
    for rollout in range(ROLLOUTS):
        at = (1 + rollout * TURN_MS) * MS
        begin = at + (1400 if rollout == LONG else 400) * MS
        driver.phase("generate", at, begin, rollout=rollout)
        for number, rank in enumerate(ranks):
            step = rank.phase("train_step", begin, begin + 400 * MS, rollout=rollout)
            length = backward_ms(number, rollout) * MS
            rank.phase("backward", begin, begin + length, rollout=rollout, parent=step)
        _add_sync(driver, ranks, engines, begin + 400 * MS, rollout, ahead)
    processes = [driver, *ranks, *engines]
    for process in processes:
        process.end((1 + ROLLOUTS * TURN_MS) * MS + (ahead if process in engines else 0))
        process.write(out)
    return RunPaths(out, "planted").root


def _add_sync(
    driver: ProcessFile,
    ranks: list[ProcessFile],
    engines: list[ProcessFile],
    at: int,
    rollout: int,
    ahead: int,
) -> None:
    source = ranks[0]
    version = f"v{rollout}"
    key: dict[str, Any] = {"sync": rollout, "source": source.source, "weight_version": version}
    key["transport"] = "nccl"
    if rollout % 2:
        driver.phase("generate", at, at + 60 * MS, rollout=rollout)
    whole = source.phase("weight_sync", at, at + 100 * MS, rollout=rollout, **key)
    named: dict[str, Any] = {"rollout": rollout, "parent": whole, **key}
    source.phase("pause_generation", at, at + 4 * MS, **named)
    for bucket in range(2):
        start = at + (4 + 45 * bucket) * MS
        about = {**named, "bucket": bucket, "bytes": BUCKET_BYTES, "tensors": 3}
        ready = source.phase("bucket_ready", start, start + 12 * MS, **about)
        source.phase("tp_gather", start, start + 5 * MS, rollout=rollout, parent=ready)
        source.phase("weight_convert", start + 5 * MS, start + 8 * MS, **{**about, "bytes": None})
        source.phase("bucket_lock_wait", start + 12 * MS, start + 14 * MS, **about)
        source.phase("bucket_send", start + 14 * MS, start + 34 * MS, **about)
        source.phase("bucket_ack", start + 34 * MS, start + 44 * MS, **about)
        for number, engine in enumerate(engines):
            # It knows only the version, and neither rollout nor sync.
            told: dict[str, Any] = {"weight_version": version, "bucket": bucket, "bytes": BUCKET_BYTES}
            told |= {"tensors": 3, "transport": "nccl"}
            received = start + ahead + 34 * MS
            engine.phase("engine_receive", start + ahead + 14 * MS, received, **told)
            engine.phase("engine_load", received, received + (5 + 3 * number) * MS, **told)
