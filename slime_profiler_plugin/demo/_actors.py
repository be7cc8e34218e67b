"""The demo's roles as Ray actors: each joins the run, works, and ends in order.

Plain classes; the driver makes actors of them. What they need of the profiler stands in
their environment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slime_profiler_plugin._timeline import timeline

from ._group import Store, host_store, join_store
from ._settings import Settings
from ._sync import SyncReport
from .engine import Engine
from .rollout_manager import RolloutManager
from .trainer import Probe, Trainer, TrainReport


class TrainerActor:
    """One trainer rank. `join` is collective, and so is all that follows it."""

    def __init__(self, settings: Settings, rank: int) -> None:
        timeline.start(role="actor", rank=rank, ranks={"dp": rank}, world_size=settings.trainers)
        self._settings = settings
        self._rank = rank
        self._store: Store = None
        self._trainer: Trainer

    def host_store(self) -> int:
        """On rank 0, before `join`: the port of the store that all ranks meet in."""
        self._store = host_store()
        return int(self._store.port)

    def join(self, port: int, engines: Sequence[Any], manager: Any) -> int:
        """Enter the trainers' world; the arguments are handles. Returns the model's bytes."""
        if self._store is None:
            self._store = join_store(port)
        calls = [_RayEngine(handle) for handle in engines]
        self._trainer = Trainer(self._settings, self._rank, self._store, calls, _RayLock(manager))
        return self._trainer.model_bytes

    def train(self, rollout: int, shares: Sequence[Any]) -> TrainReport:
        """Train on a rollout; `shares` holds one reference to all ranks' samples.

        In a list, because Ray would wait for a bare reference before it calls this.
        """
        import ray

        return self._trainer.train(rollout, lambda: ray.get(shares[0])[self._rank])

    def update_weights(self) -> SyncReport:
        """Send the weights to the engines."""
        return self._trainer.update_weights()

    def probe(self) -> Probe:
        """What this rank's model says to the fixed prompts."""
        return self._trainer.probe()

    def stop(self) -> None:
        """Leave the world and end the record."""
        self._trainer.close()
        timeline.stop()


class EngineActor(Engine):
    """One engine."""

    def __init__(self, settings: Settings, index: int) -> None:
        timeline.start(role="engine", rank=index, world_size=settings.engines, engine={"index": index})
        super().__init__(settings, index)

    def stop(self) -> None:
        """End the record."""
        timeline.stop()


class RolloutManagerActor(RolloutManager):
    """The rollout manager; `engines` are handles."""

    def __init__(self, settings: Settings, engines: Sequence[Any]) -> None:
        timeline.start(role="rollout_manager", rank=0, world_size=1)
        super().__init__(settings, [handle.generate.remote for handle in engines])

    async def stop(self) -> None:
        """End the record."""
        timeline.stop()


class _RayEngine:
    """`EngineCalls` over a handle."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def submit(self, method: str, /, *arguments: object) -> Callable[[], Any]:
        import ray

        reference = getattr(self._handle, method).remote(*arguments)
        return lambda: ray.get(reference)


class _RayLock:
    """The rollout manager's right to use the engines."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    def acquire(self) -> None:
        import ray

        ray.get(self._manager.acquire_engines.remote())

    def release(self) -> None:
        import ray

        ray.get(self._manager.release_engines.remote())
