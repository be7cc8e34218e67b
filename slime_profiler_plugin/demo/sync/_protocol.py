"""What a sync asks of engines and of a transport, and what it tells of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.demo._settings import Transport

#: The fields that every phase of a sync carries.
Fields: TypeAlias = Mapping[str, Any]
_BEFORE: Final = ("pause_generation", "flush_cache")


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


class Sent(NamedTuple):
    """What one rank moved: buckets or files, bytes of their tensors, bytes of the files.

    `baseline`: whole weights where the transport has differences.
    """

    buckets: int = 0
    bytes: int = 0
    file_bytes: int = 0
    baseline: bool = False


class Sender(Protocol):
    """One transport on one trainer rank. Building it and `send` are collective."""

    @property
    def is_source(self) -> bool:
        """Whether this rank's part of a sync is keyed by itself, else by rank 0."""

    def send(self, engines: Sequence[EngineCalls], fields: Fields) -> Sent:
        """Bring the weights to the engines, or to where they will fetch them."""


class SyncReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank moved in one weight sync; all zero for a rank that sent nothing.

    `buckets` are files on a disk, and `file_bytes` is their size. `bytes` are those of the tensors in them.
    `source`: who the sync is keyed by, ``None`` when nothing records. `baseline`: whole weights where the
    transport has differences.
    """

    sync: int
    source: str | None
    weight_version: str
    transport: Transport
    buckets: int
    bytes: int
    file_bytes: int = 0
    baseline: bool = False

    def fields(self) -> Fields:
        """The fields of the sync's phases."""
        return sync_fields(self.sync, self.source, self.weight_version, self.transport)


def sync_fields(sync: int, source: str | None, weight_version: str, transport: Transport) -> Fields:
    """What keys everything about one sync."""
    return {"sync": sync, "source": source, "weight_version": weight_version, "transport": transport}


def ask_all(engines: Sequence[EngineCalls], method: str, *arguments: object) -> list[Any]:
    """All engines' answers to one call."""
    return [answer() for answer in [engine.submit(method, *arguments) for engine in engines]]


@contextmanager
def paused_engines(engines: Sequence[EngineCalls], fields: Fields) -> Iterator[None]:
    """Engines generate nothing in the block, and after it must have the sync's weight version.

    Raises `RuntimeError` for one that has not.
    """
    for phase in _BEFORE:
        with timeline.phase(phase, **fields):
            ask_all(engines, phase, fields)
    yield
    with timeline.phase("continue_generation", **fields):
        ask_all(engines, "continue_generation", fields)
    with timeline.phase("sync_complete", **fields):
        version = fields["weight_version"]
        for index, has in enumerate(ask_all(engines, "weight_version")):
            if has != version:
                raise RuntimeError(f"engine {index} has weight version {has!r} after the sync of {version!r}")
