"""A trainer rank in a weight sync: what it sends, and how it meets the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.demo._group import agree
from slime_profiler_plugin.demo._model import Parameters
from slime_profiler_plugin.demo._settings import Settings
from slime_profiler_plugin.demo._weights import Part, split_buckets
from slime_profiler_plugin.phases import define_phase

from ._protocol import EngineCalls, Fields, Lock, paused_engines

define_phase(
    "bucket_plan",
    parents=("weight_sync",),
    roles=("actor",),
    doc="Decide which tensors travel in which bucket.",
)


class SyncRank(NamedTuple):
    """`barriers` is the gloo group of all trainer ranks; `lock` counts on rank 0."""

    parameters: Parameters
    barriers: Any
    lock: Lock
    settings: Settings

    @property
    def number(self) -> int:
        """This rank among the trainers."""
        return int(self.barriers.rank())

    @property
    def is_source(self) -> bool:
        """Whether it is the one who talks to all engines: rank 0."""
        return self.number == 0

    def buckets(self, fields: Fields) -> list[list[Part]]:
        """The whole model as the engines know it, cut into buckets."""
        with timeline.phase("bucket_plan", **fields):
            return split_buckets(self.parameters, self.settings.bucket_bytes)

    def barrier(self, fields: Fields) -> None:
        """Wait for all ranks."""
        with timeline.phase("barrier", **fields):
            self.barriers.barrier().wait()

    def agree(self, value: Any, fields: Fields) -> Any:
        """What rank 0 gave as `value`; waits for it."""
        with timeline.phase("barrier", **fields):
            return agree(value, self.barriers)

    @contextmanager
    def paused(self, engines: Sequence[EngineCalls], fields: Fields) -> Iterator[None]:
        """`paused_engines` for all ranks: nobody is in the block before engines are, or after."""
        with paused_engines(engines, fields) if self.is_source else nullcontext():
            self.barrier(fields)
            yield
            self.barrier(fields)
        self.barrier(fields)
