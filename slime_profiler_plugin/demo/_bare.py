"""The trainers' loop in bare gloo processes: real training and weight syncs, without Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, get_context
from types import TracebackType
from typing import Any, Final

import msgspec

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.config import Config

from . import _group
from ._model import VOCABULARY
from ._settings import Sample, Settings, make_samples, reward_of
from .engine import Engine
from .sync import SyncReport
from .trainer import Trainer, TrainReport, train_loop

_JOIN_S: Final = 10.0


class ProcessSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a process does before it records."""

    #: Given to `timeline.start`; with ``None`` the environment decides.
    config: str | dict[str, Any] | Config | None = None
    #: Added to the environment.
    environment: dict[str, str] = {}
    #: Called with role and rank; a module's function.
    prepare: Callable[[str, int], None] | None = None

    def begin(self, role: str, rank: int, **identity: object) -> None:
        """Prepare this process and start its timeline."""
        os.environ.update(self.environment)
        if self.prepare is not None:
            self.prepare(role, rank)
        timeline.start(self.config, role=role, rank=rank, **identity)


class RolloutDone(msgspec.Struct, frozen=True, kw_only=True):
    """A rank has finished a rollout and the sync after it."""

    rank: int
    train: TrainReport
    sync: SyncReport


class BareRun:
    """A running bare demo, as a context manager: leaving it ends what still runs.

    `trainers` and `engines` are its processes. Rank 0 and the engines talk through pipes.
    """

    def __init__(self, settings: Settings, setup: ProcessSetup) -> None:
        """Start it. Raises `ValueError` for a transport other than nccl: only rank 0 has pipes."""
        if settings.transport != "nccl":
            raise ValueError(f"transport is {settings.transport}: without Ray there is only nccl")
        context = get_context("spawn")
        self._store = _group.host_store()
        pipes = [context.Pipe() for _ in range(settings.engines)]
        reports = [context.Pipe(duplex=False) for _ in range(settings.trainers)]
        self._reports: list[connection.Connection] = [reader for reader, _ in reports]
        self.engines = [
            context.Process(target=_run_engine, args=(settings, setup, index, theirs), daemon=True)
            for index, (_, theirs) in enumerate(pipes)
        ]
        engine_ends = [ours for ours, _ in pipes]
        self.trainers = [
            context.Process(
                target=_run_trainer,
                args=(settings, setup, rank, self._store.port, engine_ends if rank == 0 else [], writer),
                daemon=True,
            )
            for rank, (_, writer) in enumerate(reports)
        ]
        for process in (*self.engines, *self.trainers):
            process.start()
        # Only the processes may hold the far ends: when one dies, its reader must see the end.
        for end in (*engine_ends, *(theirs for _, theirs in pipes), *(writer for _, writer in reports)):
            end.close()

    def __enter__(self) -> BareRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (*self.trainers, *self.engines):
            process.kill()
            process.join()
        for reader in self._reports:
            reader.close()

    def reports(self) -> Iterator[RolloutDone]:
        """What the ranks report, as it comes, until every rank has ended."""
        readers = list(self._reports)
        while readers:
            for reader in connection.wait(readers):
                assert isinstance(reader, connection.Connection), reader
                try:
                    yield reader.recv()
                except EOFError:
                    readers.remove(reader)

    def wait(self) -> list[int | None]:
        """Exit codes of the trainers, then of the engines, once all have ended."""
        for process in self.trainers:
            process.join()
        for process in self.engines:
            process.join(_JOIN_S)
        return [process.exitcode for process in (*self.trainers, *self.engines)]


def run_bare(settings: Settings, setup: ProcessSetup | None = None) -> list[RolloutDone]:
    """Run a bare demo to its end. Raises `RuntimeError` with the exit codes if a process failed."""
    with BareRun(settings, setup or ProcessSetup()) as run:
        reports = list(run.reports())
        codes = run.wait()
    if any(codes):
        raise RuntimeError(f"exit codes of trainers and engines: {codes}")
    return reports


def synthetic_samples(settings: Settings, rollout: int, rank: int) -> list[Sample]:
    """One rank's samples of a rollout, with random responses and their rewards."""
    first = rank * settings.samples_per_rank
    samples = make_samples(settings, rollout, VOCABULARY)[first : first + settings.samples_per_rank]
    for sample in samples:
        draw = settings.random("response", rollout, sample.index)
        sample.response = [draw.randrange(VOCABULARY) for _ in range(settings.new_tokens)]
        sample.reward = reward_of(sample)
    return samples


class _PipedEngine:
    """`EngineCalls` over a pipe; answers come in the order of the calls."""

    def __init__(self, index: int, pipe: connection.Connection) -> None:
        self.key = str(index)
        self._pipe = pipe

    def submit(self, method: str, /, *arguments: object) -> Callable[[], Any]:
        self._pipe.send((method, arguments))
        return self._pipe.recv


class NoLock:
    """Nobody else uses the engines."""

    def acquire(self) -> None: ...

    def release(self) -> None: ...


def _run_trainer(
    settings: Settings,
    setup: ProcessSetup,
    rank: int,
    port: int,
    engines: Sequence[connection.Connection],
    reports: connection.Connection,
) -> None:
    setup.begin("actor", rank, world_size=settings.trainers)
    trainer = Trainer(settings, rank, NoLock())
    trainer.join(_group.join_store(port))
    train_loop(
        trainer,
        [_PipedEngine(index, pipe) for index, pipe in enumerate(engines)],
        range(settings.rollouts),
        lambda rollout: synthetic_samples(settings, rollout, rank),
        lambda train, sync: reports.send(RolloutDone(rank=rank, train=train, sync=sync)),
    )
    trainer.close()
    timeline.stop()


def _run_engine(settings: Settings, setup: ProcessSetup, index: int, calls: connection.Connection) -> None:
    setup.begin("engine", index, world_size=settings.engines, engine={"index": index})
    engine = Engine(settings, index)
    while True:
        try:
            method, arguments = calls.recv()
        except EOFError:  # the trainer has ended
            break
        calls.send(getattr(engine, method)(*arguments))
    timeline.stop()
