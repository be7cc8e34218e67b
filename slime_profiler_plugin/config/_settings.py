"""Every key, its type, its limits and its default. `configs/` ships commented files that use them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
#: At most an hour, which also keeps infinity out.
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=3600)]
RoleName: TypeAlias = Annotated[str, Meta(pattern="^[a-z][a-z0-9_]*$")]
Activity: TypeAlias = Literal["cpu", "cuda", "xpu", "mtia", "hpu", "privateuse1"]


class Outputs(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Which of the four outputs are written."""

    records: bool = True
    record_function: bool = True
    nvtx: bool = True
    device_events: bool = True
    #: ``record_function`` only while this thread has an active profiler. Off: always, for
    #: observers that are no profiler (6 us per phase).
    record_function_gated: bool = True


class Records(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The record file's writer."""

    #: Seconds between two writes: what a SIGKILL may cost.
    period_s: Seconds = 1.0
    #: Bytes of encoded lines per write at most.
    flush_bytes: Positive = 262_144
    #: Records that may wait for the writer; past that the newest are dropped and counted.
    queue: Positive = 200_000
    #: A segment is rotated and compressed when it is this large.
    segment_bytes: Positive = 64_000_000
    #: Per process; past it the least valuable phases are dropped first, and counted.
    budget_bytes: Positive = 2_000_000_000
    #: fsync after each write as well (process death does not need it; power loss does).
    fsync: bool = False


class Schedule(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """torch.profiler's schedule, in rollouts."""

    wait: Count = 0
    warmup: Count = 0
    active: Positive = 1
    #: 0: again and again.
    repeat: Count = 1
    skip_first: Count = 0


class Stride(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Every `stride`-th rank, beginning with rank `offset`."""

    stride: Positive
    offset: Count = 0


RankChoice: TypeAlias = Literal["all", "first", "last"] | tuple[Count, ...] | Stride


class EngineWindow(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Windows of SGLang engines, where `roles` names ``engine``; `ranks` chooses among the engines."""

    #: Forward passes in a window, which then ends by itself. Its end blocks the engine.
    num_steps: Positive = 20
    #: What one of them adds to the file, in bytes of JSON: a large model without CUDA graphs.
    step_bytes: Positive = 3_000_000
    #: Whoever checks the engine's health kills it when it is silent for longer.
    health_check_s: Seconds = 30.0
    #: Open windows although the export is expected to take longer than that.
    force: bool = False


class Trigger(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Windows that the driver asks for when a weight sync takes unusually long."""

    #: How many times the 95th percentile of the syncs before it one must take.
    sync_over_p95: Annotated[float, Meta(ge=1, le=1000)] = 1.5
    #: Syncs before any is judged. The first, before rollout 0, is none of them.
    min_syncs: Positive = 20
    #: Windows in an attempt at most.
    windows: Annotated[int, Meta(ge=1, le=1000)] = 3


class Profiler(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """torch.profiler windows. One profiler step is one rollout."""

    #: ``None``: none but those that `trigger` asks for.
    schedule: Schedule | None = Schedule()
    #: ``all``, ``first``, ``last``, a list of ranks, or ``{stride: 4, offset: 0}``.
    ranks: RankChoice = "first"
    roles: Annotated[tuple[RoleName, ...], Meta(min_length=1)] = ("actor",)
    activities: Annotated[tuple[Activity, ...], Meta(min_length=1)] = ("cpu", "cuda")
    with_stack: bool = False
    record_shapes: bool = False
    profile_memory: bool = False
    #: A window is cut short when its events would exceed about this many bytes of JSON.
    max_bytes: Positive = 500_000_000
    #: An export that takes longer than this is counted as failed and later windows are skipped.
    max_export_s: Seconds = 120.0
    engine: EngineWindow = EngineWindow()
    #: Absent: no windows but those of `schedule`.
    trigger: Trigger | None = None


class Config(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """All settings."""

    #: Folder of the run folders; relative to the process's working directory.
    out: Annotated[str, Meta(min_length=1)] = "runs"
    outputs: Outputs = Outputs()
    records: Records = Records()
    #: Absent: no torch.profiler windows.
    profiler: Profiler | None = None

    def public(self) -> dict[str, Any]:
        """The settings as plain values, for the record file and run.json."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


def selects_rank(ranks: RankChoice, rank: int | None, world_size: int | None) -> bool:
    """Whether a `Profiler.ranks` value chooses `rank` of `world_size`.

    A process that does not know its rank is chosen by ``all`` only, and ``last`` chooses
    nobody while the world size is unknown: an unsure choice would profile every rank.

    >>> [r for r in range(8) if selects_rank(Stride(stride=4, offset=1), r, 8)]
    [1, 5]
    """
    if ranks == "all":
        return True
    if rank is None:
        return False
    if ranks == "first":
        return rank == 0
    if ranks == "last":
        return world_size is not None and rank == world_size - 1
    if isinstance(ranks, Stride):
        return rank >= ranks.offset and (rank - ranks.offset) % ranks.stride == 0
    return rank in ranks
