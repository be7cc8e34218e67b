"""What the routes answer, typed. Every duration is in integer nanoseconds, every size in bytes.

Times are ns since the first record of the attempt, on the run's reference clock; only names that say
``unix_ms`` are milliseconds since the epoch. A rollout is a number or ``"initial"``.
"""

from __future__ import annotations

import msgspec

Rollout = int | str


class _Answer(msgspec.Struct, kw_only=True):
    """Common settings."""


class RunEntry(_Answer):
    """A run in the log folder. `key` names it in every other route, `version` changes when its files do."""

    key: str
    run_id: str
    version: str
    started_unix_ms: int | None
    attempts: list[int]


class RunsAnswer(_Answer):
    """``/runs``: the newest last. `problems` says of what is there and cannot be used why."""

    log_folder: str
    runs: list[RunEntry]
    problems: list[str]


class AttemptEntry(_Answer):
    """One start of a run: its number, its rollouts in order, how many processes were seen."""

    attempt: int
    rollouts: list[Rollout]
    processes: int


class AttemptsAnswer(_Answer):
    """``/attempts?run=``."""

    run: str
    version: str
    attempts: list[AttemptEntry]


class RolloutsAnswer(_Answer):
    """``/rollouts?run=&attempt=``."""

    run: str
    version: str
    attempt: int
    rollouts: list[Rollout]


class OverviewRollout(_Answer):
    """One rollout: `parts_ns` adds up to `wall_ns` exactly.

    `parts_ns`: time during which only phases of that part ran anywhere in the run; ``overlap``: phases of
    several parts; ``other``: phases of no part, which count only where no part runs; ``idle``: none.
    `totals_ns`: time during which any phase of the part ran; these
    overlap. `outlier`: its wall time is further from the median than 3 scaled median deviations.
    """

    rollout: Rollout
    start_ns: int
    wall_ns: int
    parts_ns: dict[str, int]
    totals_ns: dict[str, int]
    outlier: bool


class OverviewAnswer(_Answer):
    """``/overview?run=&attempt=``: `parts` in the order in which they are stacked; timing ``host``."""

    run: str
    version: str
    attempt: int
    parts: list[str]
    rollouts: list[OverviewRollout]
    median_wall_ns: int | None


class RankColumn(_Answer):
    """A role's rank: its name, hosts (several after a restart elsewhere) and parallel coordinates."""

    name: str
    role: str | None
    rank: int | None
    hosts: list[str]
    ranks: dict[str, int]


class RankRow(_Answer):
    """One phase: per column the sum of its durations and how often it ended, ``None`` where it never ran.

    `depth` phases stand around it. `median_ns` is over the ranks of each role; `ratio` of a cell is its
    total over the median of its role.
    """

    phase: str
    depth: int
    total_ns: list[int | None]
    count: list[int | None]
    ratio: list[float | None]
    median_ns: dict[str, int]


class RanksAnswer(_Answer):
    """``/ranks?run=&attempt=&rollout=``: a parent's time includes its children's; timing ``host``."""

    run: str
    version: str
    attempt: int
    rollout: Rollout
    columns: list[RankColumn]
    rows: list[RankRow]


class BucketSlice(_Answer):
    """A phase on one row of the Gantt chart; `start_ns` counts from the start of the sync."""

    row: str
    phase: str
    bucket: int | None
    start_ns: int
    dur_ns: int
    bytes: int | None


class SyncEntry(_Answer):
    """One weight synchronisation of one source.

    `pieces_ns` is the time during which each phase of the source ran inside `weight_sync`, without
    counting a time twice; `remainder_ns` is what none of them covers. `send_ns` is the union of its
    ``bucket_send`` (over disks: of what engines pulled) and `gb_per_s` the bytes over it. `hidden_ns` ran
    while anybody was generating, `exposed_ns` did not. `start_ns` is ``None`` where the source itself left
    no ``weight_sync``.
    """

    sync: int
    source: str
    rollout: Rollout | None
    transport: str | None
    weight_version: str | None
    start_ns: int | None
    wall_ns: int
    buckets: int
    bytes: int
    tensors: int
    send_ns: int
    gb_per_s: float | None
    exposed_ns: int
    hidden_ns: int
    pieces_ns: dict[str, int]
    remainder_ns: int
    slices: list[BucketSlice]


class SyncAnswer(_Answer):
    """``/sync?run=&attempt=&rollout=``; without `rollout` those of all, without slices."""

    run: str
    version: str
    attempt: int
    rollout: Rollout | None
    syncs: list[SyncEntry]


class HealthProcess(_Answer):
    """One process: who, where, how its clock was placed, how it ended, what it lost."""

    name: str
    attempt: int
    host: str
    pid: int
    clock: str
    clock_error_ns: int
    ending: str
    open_phases: list[str]
    dropped: dict[str, int]
    versions: dict[str, str]
    bytes: int


class HealthAnswer(_Answer):
    """``/health?run=``: `missing` ranks in words, `damage` and `ignored` files by name."""

    run: str
    version: str
    processes: list[HealthProcess]
    missing: list[str]
    damage: list[str]
    ignored: list[str]


class MergeAnswer(_Answer):
    """``/merge/start`` and ``/merge/progress``.

    `state`: ``absent``, ``waiting``, ``running``, ``done`` or ``failed``. `bytes` is the text that a viewer
    reads, `packed_bytes` the file. `too_large`: a browser may not take it; ask for a slice. `exact` says
    whether nothing was left out.
    """

    state: str
    step: str = ""
    done_bytes: int = 0
    all_bytes: int = 0
    bytes: int = 0
    packed_bytes: int = 0
    too_large: bool = False
    exact: bool = True
    file: str = ""
    error: str = ""


class ErrorAnswer(_Answer):
    """What was wrong with a request, and what to do; with every status from 400 on."""

    error: str
