"""What the routes answer, typed. A rollout is a number as text, or ``initial``.

Numbers of a run stand in a `Table`, as ``slime-profiler report --format json`` has them: each column says its
unit and how it was measured. Elsewhere durations are integer ns and sizes bytes, and only names that say
``unix_ms`` are milliseconds since the epoch.
"""

from __future__ import annotations

from typing import Any

import msgspec


class _Answer(msgspec.Struct, kw_only=True):
    """Common settings."""


class Column(_Answer):
    """A column of a table; `unit` is empty for names and counts."""

    name: str
    unit: str
    how: str


class Table(_Answer):
    """A view of ``slime-profiler report``: its columns, and rows of as many values."""

    columns: list[Column]
    rows: list[list[Any]]


class RunEntry(_Answer):
    """A run in the log folder. `key` names it in every other route, `version` changes when its files do.

    `bytes` is what its records take on disk.
    """

    key: str
    run_id: str
    version: str
    bytes: int
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
    rollouts: list[str]
    processes: int


class AttemptsAnswer(_Answer):
    """``/attempts?run=``.

    Here and below, `version` is that of the run when its tables were made: while it grows, they may be a
    little behind ``/runs``.
    """

    run: str
    version: str
    attempts: list[AttemptEntry]


class OverviewAnswer(_Answer):
    """``/overview?run=&attempt=``: the view ``rollout`` of one attempt."""

    run: str
    version: str
    attempt: int
    table: Table


class PhaseEntry(_Answer):
    """A phase that ran; `depth` phases of the vocabulary stand around it."""

    name: str
    depth: int


class RanksAnswer(_Answer):
    """``/ranks?run=&attempt=&rollout=``: the view ``ranks`` of one rollout; `phases` as the loop goes."""

    run: str
    version: str
    attempt: int
    rollout: str
    phases: list[PhaseEntry]
    table: Table


class SyncAnswer(_Answer):
    """``/sync?run=&attempt=``: the view ``sync`` of one attempt."""

    run: str
    version: str
    attempt: int
    table: Table


class SyncPhase(_Answer):
    """A phase of a sync on the row of its process; `start_ns` counts from the start of the sync."""

    row: str
    phase: str
    bucket: int | None
    start_ns: int
    dur_ns: int
    bytes: int | None


class BucketsAnswer(_Answer):
    """``/buckets?run=&attempt=&rollout=&sync=&source=``: the view ``bucket`` of one sync, and its phases.

    The rows of `phases` begin with that of the source.
    """

    run: str
    version: str
    attempt: int
    rollout: str
    sync: int
    source: str
    table: Table
    phases: list[SyncPhase]


class HealthProcess(_Answer):
    """One process: who, where, how its clock was placed, how it ended, what it lost."""

    name: str
    attempt: int
    host: str
    pid: int
    clock: str
    clock_error_ns: int
    ending: str
    open_phases: dict[str, int]
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
    whether nothing was left out, `windows` how many traces of torch.profiler and others are in it, and
    `problems` which sources are not whole, or missing.
    """

    state: str
    step: str = ""
    done_bytes: int = 0
    all_bytes: int = 0
    bytes: int = 0
    packed_bytes: int = 0
    too_large: bool = False
    exact: bool = True
    windows: int = 0
    problems: list[str] = []
    file: str = ""
    error: str = ""


class ErrorAnswer(_Answer):
    """What was wrong with a request, and what to do; with every status from 400 on."""

    error: str
