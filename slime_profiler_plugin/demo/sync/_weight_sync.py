"""The trainers' side of a weight sync, whichever way the weights travel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.demo._group import agree, gather
from slime_profiler_plugin.demo._settings import Settings, Transport

from ._disk import DiskSender
from ._disk_delta import DeltaSender
from ._ipc import IpcSender
from ._nccl import NcclSender
from ._protocol import EngineCalls, Lock, Sender, SyncReport, ask_all, sync_fields
from ._rank import SyncRank

if TYPE_CHECKING:
    from slime_profiler_plugin.demo._model import Parameters

_SENDERS: Final[dict[Transport, Callable[[SyncRank], Sender]]] = {
    "nccl": NcclSender,
    "ipc": IpcSender,
    "disk": DiskSender,
    "disk_delta": DeltaSender,
}


class WeightSync:
    """All weight syncs of one trainer rank in one world. Building it and `run` are collective.

    The source counts the syncs: `next_sync` is the number of the coming one. Where several ranks are sources,
    all have the count of the one that is farthest, since no source may use a number twice.
    """

    def __init__(
        self, parameters: Parameters, barriers: Any, lock: Lock, settings: Settings, next_sync: int = 0
    ) -> None:
        """`barriers` is the gloo group of all trainer ranks; `lock` counts on rank 0."""
        rank = SyncRank(parameters, barriers, lock, settings)
        self._transport = settings.transport
        self._sender = _SENDERS[settings.transport](rank)
        is_source, own = self._sender.is_source, timeline.source()
        told = gather((is_source, own, next_sync), barriers)
        self._source: str | None = own if is_source else told[0][1]
        self.next_sync: int = max(number for one, _, number in told if one)
        self._version: int | None = None
        self._rank = rank

    def run(self, engines: Sequence[EngineCalls]) -> SyncReport:
        """Send this model's weights to every engine. All ranks are given all engines.

        Over disk they are only published: `reload_engines` has to follow.
        """
        sync = self.next_sync
        self.next_sync += 1
        version = str(self._next_version(engines))
        fields = sync_fields(sync, self._source, version, self._transport)
        with timeline.phase("weight_sync", **fields):
            sent = self._sender.send(engines, fields)
        return SyncReport(
            sync=sync,
            source=self._source,
            weight_version=version,
            transport=self._transport,
            buckets=sent.buckets,
            bytes=sent.bytes,
            file_bytes=sent.file_bytes,
            baseline=sent.baseline,
        )

    def _next_version(self, engines: Sequence[EngineCalls]) -> int:
        """One more than the last; in a new world, than the highest that an engine has.

        So that no version of an attempt stands for two models, whoever was started again.
        """
        if self._version is None:
            versions = ask_all(engines, "weight_version") if self._rank.is_source else []
            newest = max((int(version) for version in versions if version is not None), default=0)
            self._version = int(agree(newest, self._rank.barriers))
        self._version += 1
        return self._version
