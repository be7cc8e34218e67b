"""The trainers' side of a weight sync: rank 0 sends buckets, the others meet it at barriers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from slime_profiler_plugin._timeline import timeline

from ._group import BroadcastGroup, Store, host_store
from ._weights import Bucket, convert_parts, split_buckets

if TYPE_CHECKING:
    from ._model import Parameters

#: How the tensors travel, in the timeline's vocabulary: broadcast through a group.
TRANSPORT: Final = "nccl"


class EngineCalls(Protocol):
    """An engine in another process, as the sender sees it."""

    def submit(self, method: str, /, *arguments: object) -> Callable[[], Any]:
        """Start a call; what comes back waits for its answer, or raises what it raised."""


class Lock(Protocol):
    """The right to use the engines' channel."""

    def acquire(self) -> object:
        """Wait for it."""

    def release(self) -> object:
        """Give it back."""


class SyncReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one weight sync moved; `bytes` are those that this rank sent."""

    sync: int
    weight_version: str
    buckets: int
    bytes: int


class WeightSync:
    """All weight syncs of one trainer rank. Building it and `run` are collective."""

    def __init__(
        self,
        parameters: Parameters,
        barriers: Any,
        engines: Sequence[EngineCalls],
        lock: Lock,
        *,
        bucket_bytes: int,
        device: str,
    ) -> None:
        """`barriers` is the gloo group of all trainer ranks; `engines` and `lock` count on rank 0."""
        import torch.distributed as dist

        self._parameters = parameters
        self._barriers = barriers
        self._engines = engines
        self._lock = lock
        self._bucket_bytes = bucket_bytes
        self._device = device
        self._is_source = barriers.rank() == 0
        self._store: Store | None = None
        self._group: BroadcastGroup | None = None
        self._next = 0
        source = [timeline.source()]
        dist.broadcast_object_list(source, src=0, group=barriers)
        self._source = source[0]

    def run(self) -> SyncReport:
        """Bring every engine to this model's weights. Only the source has bytes to report."""
        sync = self._next
        self._next += 1
        fields: dict[str, Any] = {
            "sync": sync,
            "source": self._source,
            "weight_version": str(sync + 1),
            "transport": TRANSPORT,
        }
        buckets = split_buckets(self._parameters, self._bucket_bytes)
        total = 0
        with timeline.phase("weight_sync", **fields):
            if self._is_source:
                if self._group is None:
                    with timeline.phase("connect_engines", **fields):
                        self._connect()
                for phase in ("pause_generation", "flush_cache"):
                    with timeline.phase(phase, **fields):
                        self._ask_all(phase, fields)
            self._barrier(fields)
            for number, parts in enumerate(buckets):
                if self._is_source:
                    total += self._send(number, parts, fields)
            self._barrier(fields)
            if self._is_source:
                with timeline.phase("continue_generation", **fields):
                    self._ask_all("continue_generation", fields)
                with timeline.phase("sync_complete", **fields):
                    self._check_versions(fields["weight_version"])
            self._barrier(fields)
        return SyncReport(
            sync=sync, weight_version=fields["weight_version"], buckets=len(buckets), bytes=total
        )

    def _connect(self) -> None:
        self._store = host_store()
        size = len(self._engines) + 1
        answers = [
            engine.submit("connect", self._store.port, rank, size)
            for rank, engine in enumerate(self._engines, start=1)
        ]
        self._group = BroadcastGroup(self._store, 0, size, self._device)
        for answer in answers:
            answer()

    def _ask_all(self, method: str, fields: Mapping[str, object]) -> None:
        for answer in [engine.submit(method, dict(fields)) for engine in self._engines]:
            answer()

    def _send(self, number: int, parts: Sequence[Any], fields: Mapping[str, Any]) -> int:
        assert self._group is not None, "sent before the engines were connected"
        with timeline.phase("weight_convert", bucket=number, **fields):
            converted = convert_parts(self._parameters, parts)
        ready = timeline.begin("bucket_ready", bucket=number, **fields)
        # The optimizer may not touch what is on its way, so a bucket is a copy.
        tensors = [tensor.clone() for _, tensor in converted]
        bucket = Bucket(
            sync=fields["sync"],
            bucket=number,
            source=self._source,
            weight_version=fields["weight_version"],
            names=[name for name, _ in converted],
            shapes=[list(tensor.shape) for tensor in tensors],
            dtypes=[str(tensor.dtype).removeprefix("torch.") for tensor in tensors],
            bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        )
        ready.end(bytes=bucket.bytes, tensors=len(tensors))
        about = {**bucket.fields(), "transport": TRANSPORT}
        with timeline.phase("bucket_lock_wait", **about):
            self._lock.acquire()
        try:
            with timeline.phase("bucket_send", **about):
                answers = [engine.submit("receive_bucket", bucket) for engine in self._engines]
                self._group.broadcast(tensors)
            with timeline.phase("bucket_ack", **about):
                for answer in answers:
                    answer()
        finally:
            self._lock.release()
        return bucket.bytes

    def _check_versions(self, version: str) -> None:
        for index, answer in enumerate([engine.submit("weight_version") for engine in self._engines]):
            has = answer()
            if has != version:
                raise RuntimeError(f"engine {index} has weight version {has!r} after the sync of {version!r}")

    def _barrier(self, fields: Mapping[str, Any]) -> None:
        with timeline.phase("barrier", **fields):
            self._barriers.barrier().wait()
