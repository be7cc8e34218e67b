"""All Ray actors of a demo as the driver handles them: started, asked, started again, ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from ._actors import PATIENCE_S, CriticActor, EngineActor, RolloutManagerActor, TrainerActor, as_engine_calls
from ._cluster import DemoError
from ._probe import Probe
from ._settings import Settings
from .sync import SyncReport, reload_engines


class Fleet:
    """The actors. What takes long gives references, and `wait_for` their results."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        """Start them. `environment` is added to that of each."""
        self._settings = settings
        self._environment = dict(environment)
        self._homes = _colocated(settings)
        self.engines = [self._start_engine(index) for index in range(settings.engines)]
        self._manager = self._start(RolloutManagerActor, 0)
        self._trainers = [self._start_trainer(rank) for rank in range(settings.trainers)]
        critics = settings.trainers if settings.critic else 0
        self._critics = [self._start(CriticActor, 1, rank) for rank in range(critics)]

    def join(self) -> int:
        """Make each trained role a world, and give the manager its engines. Returns the model's bytes."""
        joins = []
        for ranks in filter(None, (self._trainers, self._critics)):
            port = wait_for(ranks[0].host_store.remote())
            joins += [rank.join.remote(port) for rank in ranks]
        wait_for(self._manager.use_handles.remote(self.engines))
        return int(wait_for(joins)[0])

    def generate(self, rollout: int) -> Any:
        """Begin to generate; a reference to the samples, one list per trainer rank."""
        return self._manager.generate.remote(rollout)

    def train(self, rollout: int, shares: Any) -> Any:
        """Begin to train on what `shares` refers to, as soon as it is there; references to `TrainReport`s."""
        values = [[critic.train.remote(rollout, [shares])] for critic in self._critics]
        each = values or [[] for _ in self._trainers]
        return [
            trainer.train.remote(rollout, [shares], own)
            for trainer, own in zip(self._trainers, each, strict=True)
        ]

    def update_weights(self) -> list[SyncReport]:
        """One sync; the reports of the ranks that sent something."""
        reports: list[SyncReport] = wait_for([t.update_weights.remote(self.engines) for t in self._trainers])
        if self._settings.transport == "disk":
            with _told_failures():
                reload_engines(as_engine_calls(self.engines), reports[0])
        return [report for report in reports if report.bytes]

    def probe_engines(self) -> list[Probe]:
        """What each engine's model says to the fixed prompts."""
        return wait_for([e.probe.remote() for e in self.engines])  # type: ignore[no-any-return]

    def probe_trainers(self) -> list[Probe]:
        """What each trainer's model says to the fixed prompts."""
        return wait_for([t.probe.remote() for t in self._trainers])  # type: ignore[no-any-return]

    def restart_engine(self, index: int) -> None:
        """Let an engine die, and start another in its place. It has random weights."""
        _let_die(self.engines[index])
        self.engines[index] = self._start_engine(index)
        wait_for(self._manager.use_handles.remote(self.engines))

    def restart_trainer(self, rank: int, rollout: int) -> None:
        """Let a rank die while `rollout` is under way, and start another in its place.

        All then make a new world, with the state of a rank that lived on.
        """
        _let_die(self._trainers[rank])
        self._trainers[rank] = self._start_trainer(rank)
        alive = next(r for r in range(len(self._trainers)) if r != rank)
        port = wait_for(self._trainers[0].host_store.remote())
        wait_for([t.rejoin.remote(port, rollout, alive) for t in self._trainers])

    def stop(self, patience_s: float = PATIENCE_S) -> None:
        """Let all end in order; one that is dead already has nothing to say."""
        import ray

        actors = (*self._trainers, *self._critics, *self.engines, self._manager)
        stops = [actor.stop.remote() for actor in actors]
        ray.wait(stops, num_returns=len(stops), timeout=patience_s)

    def _start_engine(self, index: int) -> Any:
        return self._start(EngineActor, 1, index, home=index)

    def _start_trainer(self, rank: int) -> Any:
        return self._start(TrainerActor, 1, rank, self._manager, home=rank)

    def _start(self, kind: type, gpus: int, *arguments: object, home: int | None = None) -> Any:
        import ray

        options: dict[str, Any] = {"num_cpus": 1, "runtime_env": {"env_vars": self._environment}}
        if self._settings.device.startswith("cuda"):
            options["num_gpus"] = gpus
            if self._homes is not None and home is not None:
                options |= {"num_gpus": gpus / 2, "scheduling_strategy": self._homes[home]}
        return ray.remote(**options)(kind).remote(self._settings, *arguments)


def wait_for(references: Any) -> Any:
    """Results of actor calls. Raises `DemoError` with the actor's own error, or when it is stuck."""
    import ray

    with _told_failures():
        return ray.get(references, timeout=PATIENCE_S)


@contextmanager
def _told_failures() -> Iterator[None]:
    import ray

    try:
        yield
    except ray.exceptions.GetTimeoutError as error:
        raise DemoError(f"an actor did not answer for {PATIENCE_S:.0f} s") from error
    except ray.exceptions.RayError as error:
        raise DemoError(f"an actor failed: {error}") from error
    except RuntimeError as error:  # what this process, in the place of a trainer, says of the engines
        raise DemoError(str(error)) from error


def _let_die(actor: Any) -> None:
    """Kill it, and wait until it is dead."""
    import ray

    # The record of a killed process ends with its last write; so that this one ends here:
    wait_for(actor.flush.remote())
    ray.kill(actor)
    with _told_failures(), suppress(ray.exceptions.RayActorError):
        while True:
            ray.get(actor.flush.remote(), timeout=PATIENCE_S)


def _colocated(settings: Settings) -> list[Any] | None:
    """Over ipc, and on GPUs: where trainer rank and engine of each index share one."""
    if settings.transport != "ipc" or not settings.device.startswith("cuda"):
        return None
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = ray.util.placement_group(
        [{"CPU": 2 if rank < settings.engines else 1, "GPU": 1} for rank in range(settings.trainers)]
    )
    wait_for(group.ready())
    return [
        PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        for index in range(settings.trainers)
    ]
