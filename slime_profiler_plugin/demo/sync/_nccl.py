"""nccl: rank 0 broadcasts buckets to all engines through a group beside the world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.demo._group import BroadcastGroup, Store, host_store
from slime_profiler_plugin.demo._weights import Bucket, Part, convert_parts, describe_bucket

from ._protocol import EngineCalls, Fields, Sent
from ._rank import SyncRank

if TYPE_CHECKING:
    from torch import Tensor


class NcclSender:
    """The group is made anew when it is to have other engines."""

    def __init__(self, rank: SyncRank) -> None:
        self._rank = rank
        self._store: Store | None = None
        self._group: BroadcastGroup | None = None
        self._connected: list[str] = []

    @property
    def is_source(self) -> bool:
        """Rank 0 alone sends."""
        return self._rank.is_source

    def send(self, engines: Sequence[EngineCalls], fields: Fields) -> Sent:
        """All buckets to all engines, one after the other."""
        if self._rank.is_source:
            self._connect(engines, fields)
        sizes = []
        with self._rank.paused(engines, fields):
            if self._rank.is_source:
                sizes = [
                    self._send_bucket(number, parts, engines, fields)
                    for number, parts in enumerate(self._rank.buckets(fields))
                ]
        return Sent(buckets=len(sizes), bytes=sum(sizes))

    def _connect(self, engines: Sequence[EngineCalls], fields: Fields) -> None:
        keys = [engine.key for engine in engines]
        if self._group is not None and keys == self._connected:
            return
        with timeline.phase("connect_engines", **fields):
            self._store = host_store()
            size = len(engines) + 1
            answers = [
                engine.submit("connect", self._store.port, rank, size)
                for rank, engine in enumerate(engines, start=1)
            ]
            self._group = BroadcastGroup(self._store, 0, size, self._rank.settings.device)
            for answer in answers:
                answer()
        self._connected = keys

    def _send_bucket(
        self, number: int, parts: Sequence[Part], engines: Sequence[EngineCalls], fields: Fields
    ) -> int:
        assert self._group is not None, "sent before the engines were connected"
        with timeline.phase("weight_convert", bucket=number, **fields):
            converted = convert_parts(self._rank.parameters, parts)
            bucket = describe_bucket(number, converted, fields)
        about = bucket.fields()
        # A span, which need not nest: elsewhere buckets come out of generators.
        ready = timeline.begin("bucket_ready", **about)
        try:
            # The optimizer may not touch what is on its way, so a bucket is a copy.
            tensors = [tensor.clone() for _, tensor in converted]
        finally:
            ready.end()
        with timeline.phase("bucket_lock_wait", **about):
            self._rank.lock.acquire()
        try:
            with timeline.phase("bucket_send", **about):
                answers = [engine.submit("receive_bucket", bucket) for engine in engines]
                self._group.broadcast(tensors)
            with timeline.phase("bucket_ack", **about):
                for answer in answers:
                    answer()
        finally:
            with timeline.phase("bucket_lock_release", **about):
                self._rank.lock.release()
        return bucket.bytes


def receive_tensors(group: BroadcastGroup, bucket: Bucket, device: str) -> list[Tensor]:
    """In an engine: a bucket's tensors, from the group."""
    import torch

    tensors = [
        torch.empty(shape, dtype=getattr(torch, dtype), device=device)
        for shape, dtype in zip(bucket.shapes, bucket.dtypes, strict=True)
    ]
    group.broadcast(tensors)
    return tensors
