"""The weight synchronisation that is going on in this process: what all its phases say, and its counts."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from slime_profiler_plugin._timeline import PhaseContext, Span, timeline
from slime_profiler_plugin.attach.megatron import tell_ranks

Fields = dict[str, Any]
Call = Callable[[], Any]

#: By the name of an updater's class, the first of its bases that is here.
TRANSPORTS: Final = {
    "UpdateWeightFromDiskDelta": "disk_delta",
    "UpdateWeightFromDistributed": "nccl",
    "UpdateWeightFromTensor": "ipc",
    "UpdateWeightFromDisk": "disk",
}


class Stretch:
    """A phase that begins in one call and ends in another, within what is around both."""

    def __init__(self) -> None:
        self._context: PhaseContext | None = None

    @property
    def is_open(self) -> bool:
        """Whether it goes on."""
        return self._context is not None

    def begin(self, context: PhaseContext) -> None:
        """Now; what was open ends."""
        self.end()
        context.__enter__()
        self._context = context

    def end(self, error: BaseException | None = None) -> None:
        """Nothing when none is open."""
        context, self._context = self._context, None
        if context is not None:
            context.__exit__(None if error is None else type(error), error, None)


class Sync:
    """One sync. `updater` is ``None`` in the driver, which has no number for it either."""

    def __init__(self, updater: Any, fields: Fields) -> None:
        self.updater = updater
        self._fields = fields
        #: Whether the updater has begun: slime skips it when there are no engines.
        self.has_run = False
        #: How many buckets were made ready, and sent to each group; the engine counts likewise.
        self.counts: Counter[str] = Counter()
        #: What the phases about the bucket that is being sent say.
        self.bucket: Fields = {}
        #: The last method of an actor that was called, whose answers nobody has waited for.
        self.called: str | None = None
        #: How many nodes write, which of them this is, and whether this rank writes for it.
        self.layout: tuple[int, int, bool] | None = None
        #: Of a batch of experts: ``gathered`` until the first is ``converted``.
        self.experts: str | None = None
        self.asking = Stretch()
        self.waiting = Stretch()
        self.gathering = Stretch()
        self.completing = Stretch()

    @property
    def transport(self) -> str:
        """As in the fields."""
        return str(self._fields["transport"])

    @property
    def is_source(self) -> bool:
        """Whether this rank sends."""
        if self.transport in ("nccl", "disk_delta"):
            return bool(getattr(self.updater, "_is_pp_src_rank", False))
        if self.transport == "ipc":
            return self.is_gather_source or bool(getattr(self.updater, "_is_distributed_src_rank", False))
        return self.layout is not None and self.layout[2]

    @property
    def is_gather_source(self) -> bool:
        """Whether this rank hands tensors to the engine beside it, its own and those of others."""
        source = getattr(self.updater, "_ipc_gather_src", None)
        return source is not None and source == self.updater.rank

    def next_bucket(self) -> int:
        """The number of the bucket that is made ready next.

        An engine that is handed tensors counts the calls: none for a bucket that is empty on all ranks.
        """
        return self.counts["handed" if self.transport == "ipc" and self.is_gather_source else "ready"]

    def fields(self, **more: Any) -> Fields:
        """Of a phase of the sync; `more` are added. Only a source names itself."""
        if self.updater is not None and self.is_source:
            return {**self._fields, "source": timeline.source(), **more}
        return {**self._fields, **more}

    def phase(self, name: str, **more: Any) -> PhaseContext:
        """Context manager: a phase of the sync."""
        return timeline.phase(name, **self.fields(**more))

    def begin(self, name: str, **more: Any) -> Span:
        """The same as a span, whose end may say more."""
        return timeline.begin(name, **self.fields(**more))

    def close(self, error: BaseException | None) -> None:
        """End what is still open, the innermost first."""
        for stretch in (self.gathering, self.waiting, self.asking, self.completing):
            stretch.end(error)


_current: Final[ContextVar[Sync | None]] = ContextVar("weight_sync", default=None)
#: The next sync's number, by updater.
_numbers: Final[weakref.WeakKeyDictionary[Any, int]] = weakref.WeakKeyDictionary()

#: The sync that is going on in this thread, or ``None``.
current: Final = _current.get


@contextmanager
def syncing(updater: Any) -> Iterator[Sync]:
    """A sync of `updater` goes on inside; where one does already, it is that one."""
    running = current()
    if running is not None:
        yield running
        return
    tell_ranks()
    number = _numbers.get(updater, _version_of(updater))
    with _open(Sync(updater, {"sync": number, **_describe(updater)})) as sync:
        try:
            yield sync
        finally:
            if sync.has_run:
                _numbers[updater] = number + 1


@contextmanager
def reloading(weight_version: str) -> Iterator[Sync]:
    """The driver's part of a sync over disk."""
    with _open(Sync(None, {"weight_version": weight_version, "transport": "disk"})) as sync:
        yield sync


@contextmanager
def _open(sync: Sync) -> Iterator[Sync]:
    token = _current.set(sync)
    try:
        with sync.phase("weight_sync"):
            try:
                yield sync
            except BaseException as error:
                sync.close(error)
                raise
            sync.close(None)
    finally:
        _current.reset(token)


def _describe(updater: Any) -> Fields:
    """What is known before it begins: most updaters count their version up as they do."""
    transport = transport_of(updater)
    if transport == "disk_delta" and not getattr(updater, "_baseline_captured", True):
        return {
            "weight_version": str(_version_of(updater)),
            "transport": transport,
            "baseline": True,
        }
    return {"weight_version": str(_version_of(updater) + 1), "transport": transport}


def _version_of(updater: Any) -> int:
    version = getattr(updater, "weight_version", 0)
    return version if isinstance(version, int) else 0


def transport_of(updater: Any) -> str:
    """What the weights travel over.

    >>> class UpdateWeightFromDistributed: ...
    >>> class OfMine(UpdateWeightFromDistributed): ...
    >>> transport_of(OfMine())
    'nccl'
    """
    for kind in type(updater).__mro__:
        if kind.__name__ in TRANSPORTS:
            return TRANSPORTS[kind.__name__]
    return type(updater).__name__


def size_of(named_tensors: Any) -> Fields:
    """Bytes and number of (name, tensor) pairs.

    >>> size_of([])
    {'bytes': 0, 'tensors': 0}
    """
    return {"bytes": sum(tensor.nbytes for _, tensor in named_tensors), "tensors": len(named_tensors)}


def argument(bound: Any, place: int, name: str) -> Any:
    """What a call was given as its parameter `name`, which stands at `place`; ``None``: nothing."""
    return bound.args[place] if len(bound.args) > place else bound.kwargs.get(name)
