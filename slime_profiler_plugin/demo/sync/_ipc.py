"""ipc: each trainer rank hands buckets to the engine beside it, as memory that both then hold.

On the CPU that is torch's shared memory, on a GPU CUDA IPC (which we have never run).
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.demo._weights import Bucket, Part, convert_parts, describe_bucket
from slime_profiler_plugin.phases import define_phase

from ._protocol import EngineCalls, Fields, Sent
from ._rank import SyncRank

if TYPE_CHECKING:
    from torch import Tensor

define_phase(
    "bucket_release",
    parents=("weight_sync",),
    roles=("actor",),
    doc="Give back the memory in which a bucket was handed over.",
)


class IpcSender:
    """Rank r serves engine r; ranks beyond the engines only meet the others."""

    def __init__(self, rank: SyncRank) -> None:
        import torch.multiprocessing

        self._rank = rank
        if rank.settings.device == "cpu":
            # The other strategy passes file descriptors, for which processes must trust each other's key.
            torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]

    @property
    def is_source(self) -> bool:
        """Whether there is an engine beside this rank, which it alone sends to."""
        return self._rank.number < self._rank.settings.engines

    def send(self, engines: Sequence[EngineCalls], fields: Fields) -> Sent:
        """All buckets to the engine beside this rank."""
        sizes = []
        with self._rank.paused(engines, fields):
            if self.is_source:
                engine = engines[self._rank.number]
                sizes = [
                    self._send_bucket(number, parts, engine, fields)
                    for number, parts in enumerate(self._rank.buckets(fields))
                ]
        return Sent(buckets=len(sizes), bytes=sum(sizes))

    def _send_bucket(self, number: int, parts: Sequence[Part], engine: EngineCalls, fields: Fields) -> int:
        with timeline.phase("weight_convert", bucket=number, **fields):
            converted = convert_parts(self._rank.parameters, parts)
            bucket = describe_bucket(number, converted, fields)
        about = {**bucket.fields(), "engine": self._rank.number}
        with timeline.phase("bucket_ready", **about):
            shared = flatten_shared([tensor for _, tensor in converted])
        with timeline.phase("bucket_send", **about):
            answer = engine.submit("receive_bucket", bucket, make_handle(shared))
        with timeline.phase("bucket_ack", **about):
            answer()
        with timeline.phase("bucket_release", **about):
            del shared  # not before the engine has copied it
            release_shared(self._rank.settings.device)
        return bucket.bytes


def flatten_shared(tensors: Sequence[Tensor]) -> Tensor:
    """One after the other in one tensor whose memory another process can open. They are of one dtype."""
    import torch

    size = sum(tensor.numel() for tensor in tensors)
    flat = torch.empty(size, dtype=tensors[0].dtype, device=tensors[0].device)
    flat.share_memory_()  # type: ignore[no-untyped-call]
    return torch.cat([tensor.reshape(-1) for tensor in tensors], out=flat)


def make_handle(shared: Tensor) -> bytes:
    """What another process opens shared memory with. It counts as a holder, so it must be opened, once."""
    return bytes(ForkingPickler.dumps(shared))


def open_handle(handle: bytes, bucket: Bucket) -> list[Tensor]:
    """In an engine: a bucket's tensors, which are the sender's memory."""
    import torch
    import torch.multiprocessing  # it teaches pickle what a handle is

    flat: Tensor = pickle.loads(handle)
    pieces = torch.split(flat, [torch.Size(shape).numel() for shape in bucket.shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, bucket.shapes, strict=True)]


def release_shared(device: str) -> None:
    """On either side, when a bucket has been copied: on a GPU wait for it, and let go of what is over."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]
