"""One typed configuration: a YAML file or a mapping, then the environment.

Every key, its type and its default stand in the structures below; `configs/` ships
commented files that use them.
"""

from __future__ import annotations

from typing import Any

import msgspec


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
    period_s: float = 1.0
    #: Bytes of encoded lines per write at most.
    flush_bytes: int = 262_144
    #: Records that may wait for the writer; past that the newest are dropped and counted.
    queue: int = 200_000
    #: A segment is rotated and compressed when it is this large.
    segment_bytes: int = 64_000_000
    #: Per process; past it the least valuable phases are dropped first, and counted.
    budget_bytes: int = 2_000_000_000
    #: fsync after each write as well (process death does not need it; power loss does).
    fsync: bool = False


class Schedule(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """torch.profiler's schedule, in rollouts."""

    wait: int = 0
    warmup: int = 0
    active: int = 1
    #: 0: again and again.
    repeat: int = 1
    skip_first: int = 0


class Profiler(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """torch.profiler windows. One profiler step is one rollout."""

    schedule: Schedule = Schedule()
    #: ``all``, ``first``, ``last``, a list of ranks, or ``{stride: 4, offset: 0}``.
    ranks: str | list[int] | dict[str, int] = "first"
    roles: list[str] = msgspec.field(default_factory=lambda: ["actor"])
    activities: list[str] = msgspec.field(default_factory=lambda: ["cpu", "cuda"])
    with_stack: bool = False
    record_shapes: bool = False
    profile_memory: bool = False
    #: A window is cut short when its events would exceed about this many bytes of JSON.
    max_bytes: int = 500_000_000
    #: An export that takes longer than this is counted as failed and later windows are skipped.
    max_export_s: float = 120.0


class Config(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """All settings."""

    out: str = "runs"
    outputs: Outputs = Outputs()
    records: Records = Records()
    profiler: Profiler | None = None

    def public(self) -> dict[str, Any]:
        """The settings as plain values, for the record file and run.json."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]
