"""The demo's roles as Ray actors: each joins the run, works, and ends in order.

Plain classes; the driver makes actors of them. What they need of the profiler stands in
their environment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from slime_profiler_plugin._timeline import timeline

from ._group import Store, host_store, join_store
from ._probe import Probe
from ._settings import Sample, Settings
from .critic import Critic
from .engine import Engine
from .rollout_manager import RolloutManager
from .sync import EngineCalls, SyncReport
from .trainer import Trainer, TrainReport

#: Seconds; an actor that does not answer for so long is stuck.
PATIENCE_S: Final = 180.0


class _WorldMember:
    """A rank of a world that meets in a store which its rank 0 hosts."""

    def __init__(self) -> None:
        #: In use, and not to be let go of before the next.
        self._store: Store = None
        self._hosted: Store = None

    def host_store(self) -> int:
        """On rank 0, before each `join`: the port of the store that all ranks meet in."""
        self._store = self._hosted = host_store()
        return int(self._hosted.port)

    def _meet(self, port: int) -> Store:
        """The store at that port: the one that was just hosted here, or one of another rank."""
        self._store, self._hosted = self._hosted or join_store(port), None
        return self._store


class TrainerActor(_WorldMember):
    """One trainer rank; `lock` is a handle to whoever shares out the engines."""

    def __init__(self, settings: Settings, rank: int, lock: Any) -> None:
        timeline.start(role="actor", rank=rank, ranks={"dp": rank}, world_size=settings.trainers)
        super().__init__()
        self._rank = rank
        self._trainer = Trainer(settings, rank, _RayLock(lock))

    def join(self, port: int) -> int:
        """Enter the trainers' world. Collective; returns the model's bytes."""
        self._trainer.join(self._meet(port))
        return self._trainer.model_bytes

    def rejoin(self, port: int, rollout: int, state_from: int) -> None:
        """Enter it anew while `rollout` is under way, with the state of rank `state_from`. Collective."""
        timeline.set_rollout(rollout)
        self._trainer.join(self._meet(port), state_from)

    def train(self, rollout: int, shares: Sequence[Any], values: Sequence[Any]) -> TrainReport:
        """Train on a rollout. Collective.

        `shares` holds one reference to all ranks' samples, `values` one to the values of this rank's or
        nothing: Ray would wait for a bare reference before it calls this.
        """
        import ray

        def fetch() -> tuple[Sequence[Sample], Sequence[float] | None]:
            samples: Sequence[Sample] = ray.get(shares[0])[self._rank]
            return samples, ray.get(values[0]) if values else None

        return self._trainer.train(rollout, fetch)

    def update_weights(self, engines: Sequence[Any]) -> SyncReport:
        """Send the weights to the engines, which are handles. Collective."""
        return self._trainer.update_weights(as_engine_calls(engines))

    def probe(self) -> Probe:
        """What this rank's model says to the fixed prompts."""
        return self._trainer.probe()

    def flush(self) -> None:
        """Write what was recorded until now."""
        timeline.flush()

    def stop(self) -> None:
        """Leave the world and end the record."""
        self._trainer.close()
        timeline.stop()


class CriticActor(_WorldMember):
    """One critic rank."""

    def __init__(self, settings: Settings, rank: int) -> None:
        timeline.start(role="critic", rank=rank, ranks={"dp": rank}, world_size=settings.trainers)
        super().__init__()
        self._rank = rank
        self._critic = Critic(settings, rank)

    def join(self, port: int) -> None:
        """Enter the critic's world. Collective."""
        self._critic.join(self._meet(port))

    def train(self, rollout: int, shares: Sequence[Any]) -> list[float]:
        """Train on a rollout, whose samples `shares` holds as a trainer's. Collective; gives the values."""
        import ray

        return self._critic.train(rollout, lambda: ray.get(shares[0])[self._rank])

    def stop(self) -> None:
        """Leave the world and end the record."""
        self._critic.close()
        timeline.stop()


class EngineActor(Engine):
    """One engine."""

    def __init__(self, settings: Settings, index: int) -> None:
        timeline.start(role="engine", rank=index, world_size=settings.engines, engine={"index": index})
        super().__init__(settings, index)

    def flush(self) -> None:
        """Write what was recorded until now."""
        timeline.flush()

    def stop(self) -> None:
        """End the record."""
        timeline.stop()


class RolloutManagerActor(RolloutManager):
    """The rollout manager."""

    def __init__(self, settings: Settings) -> None:
        timeline.start(role="rollout_manager", rank=0, world_size=1)
        super().__init__(settings)

    async def use_handles(self, engines: Sequence[Any]) -> None:
        """Generate on these engines from now on."""
        self.use_engines([handle.generate.remote for handle in engines])

    async def stop(self) -> None:
        """End the record."""
        timeline.stop()


def as_engine_calls(handles: Sequence[Any]) -> list[EngineCalls]:
    """Engines as a sender sees them, from their handles."""
    return [_RayEngine(handle) for handle in handles]


class _RayEngine:
    """`EngineCalls` over a handle."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    @property
    def key(self) -> str:
        return str(self._handle._actor_id.hex())  # there is no public name for it

    def submit(self, method: str, /, *arguments: object) -> Callable[[], Any]:
        import ray

        reference = getattr(self._handle, method).remote(*arguments)
        return lambda: ray.get(reference, timeout=PATIENCE_S)


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
