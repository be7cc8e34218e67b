"""The trainers' side of a weight sync: rank 0 sends buckets, the others meet it at barriers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from slime_profiler_plugin._timeline import timeline

from ._group import BroadcastGroup, Store, host_store
from ._settings import Settings
from ._weights import Bucket, convert_parts, split_buckets

if TYPE_CHECKING:
    from ._model import Parameters

#: How the tensors travel, in the timeline's vocabulary: broadcast through a group.
TRANSPORT: Final = "nccl"


class EngineCalls(Protocol):
    """An engine in another process, as the sender sees it."""

    @property
    def key(self) -> str:
        """Tells it from every other engine of the run, and from the one that it took the place of."""

    def submit(self, method: str, /, *arguments: object) -> Callable[[], Any]:
        """Start a call; what comes back waits for its answer, or raises what it raised."""


class Lock(Protocol):
    """The right to use the engines' channel."""

    def acquire(self) -> object:
        """Wait for it."""

    def release(self) -> object:
        """Give it back."""


class SyncReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank moved in one weight sync; all zero for a rank that sent nothing.

    `bytes` are those of the tensors. `source`: who the sync is keyed by, ``None`` when nothing records.
    """

    sync: int
    source: str | None
    weight_version: str
    buckets: int
    bytes: int


class WeightSync:
    """All weight syncs of one trainer rank in one world. Building it and `run` are collective.

    The source, rank 0, counts the syncs: `next_sync` is the number of the coming one.
    """

    def __init__(
        self, parameters: Parameters, barriers: Any, lock: Lock, settings: Settings, next_sync: int = 0
    ) -> None:
        """`barriers` is the gloo group of all trainer ranks; `lock` and `next_sync` count on rank 0."""
        import torch.distributed as dist

        self._parameters = parameters
        self._barriers = barriers
        self._lock = lock
        self._settings = settings
        self._is_source = barriers.rank() == 0
        self._store: Store | None = None
        self._group: BroadcastGroup | None = None
        self._connected: list[str] = []
        agreed: list[Any] = [timeline.source(), next_sync]
        dist.broadcast_object_list(agreed, src=0, group=barriers)
        self._source: str | None = agreed[0]
        self.next_sync: int = agreed[1]

    def run(self, engines: Sequence[EngineCalls]) -> SyncReport:
        """Bring every engine to this model's weights. All ranks are given all engines."""
        sync = self.next_sync
        self.next_sync += 1
        fields: dict[str, Any] = {
            "sync": sync,
            "source": self._source,
            "weight_version": str(sync + 1),
            "transport": TRANSPORT,
        }
        buckets = split_buckets(self._parameters, self._settings.bucket_bytes)
        total = 0
        with timeline.phase("weight_sync", **fields):
            if self._is_source:
                keys = [engine.key for engine in engines]
                if self._group is None or keys != self._connected:
                    with timeline.phase("connect_engines", **fields):
                        self._connect(engines)
                    self._connected = keys
                for phase in ("pause_generation", "flush_cache"):
                    with timeline.phase(phase, **fields):
                        _ask_all(engines, phase, fields)
            self._barrier(fields)
            for number, parts in enumerate(buckets):
                if self._is_source:
                    total += self._send(number, parts, engines, fields)
            self._barrier(fields)
            if self._is_source:
                with timeline.phase("continue_generation", **fields):
                    _ask_all(engines, "continue_generation", fields)
                with timeline.phase("sync_complete", **fields):
                    _check_versions(engines, fields["weight_version"])
            self._barrier(fields)
        return SyncReport(
            sync=sync,
            source=self._source,
            weight_version=fields["weight_version"],
            buckets=len(buckets) if self._is_source else 0,
            bytes=total,
        )

    def _connect(self, engines: Sequence[EngineCalls]) -> None:
        self._store = host_store()
        size = len(engines) + 1
        answers = [
            engine.submit("connect", self._store.port, rank, size)
            for rank, engine in enumerate(engines, start=1)
        ]
        self._group = BroadcastGroup(self._store, 0, size, self._settings.device)
        for answer in answers:
            answer()

    def _send(
        self, number: int, parts: Sequence[Any], engines: Sequence[EngineCalls], fields: Mapping[str, Any]
    ) -> int:
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
                answers = [engine.submit("receive_bucket", bucket) for engine in engines]
                self._group.broadcast(tensors)
            with timeline.phase("bucket_ack", **about):
                for answer in answers:
                    answer()
        finally:
            self._lock.release()
        return bucket.bytes

    def _barrier(self, fields: Mapping[str, Any]) -> None:
        with timeline.phase("barrier", **fields):
            self._barriers.barrier().wait()


def _ask_all(engines: Sequence[EngineCalls], method: str, fields: Mapping[str, object]) -> None:
    for answer in [engine.submit(method, dict(fields)) for engine in engines]:
        answer()


def _check_versions(engines: Sequence[EngineCalls], version: str) -> None:
    for index, answer in enumerate([engine.submit("weight_version") for engine in engines]):
        has = answer()
        if has != version:
            raise RuntimeError(f"engine {index} has weight version {has!r} after the sync of {version!r}")
