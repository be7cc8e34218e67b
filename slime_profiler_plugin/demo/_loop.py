"""The RL loop over Ray actors: generate, train, sync, and prove that the sync was one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.phases import define_phase

from ._actors import EngineActor, RolloutManagerActor, TrainerActor
from ._cluster import DemoError
from ._settings import Settings
from ._sync import SyncReport
from .trainer import Probe, TrainReport

define_phase("weight_check", roles=("driver",), doc="Compare what trainers and engines say after a sync.")

#: An actor that does not answer for this long is stuck.
_PATIENCE_S: Final = 180.0
#: After a failure some may be stuck in a collective that will never end.
_LAST_PATIENCE_S: Final = 10.0


class SyncProof(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared after a sync.

    In each engine some logit moved by `logit_change` or more.
    """

    sync: SyncReport
    models: int
    tokens: int
    logit_change: float


class RolloutResult(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the loop; `rollout` is ``"initial"`` for the sync before the first."""

    rollout: int | str
    mean_reward: float | None = None
    losses: list[float] = []
    proof: SyncProof


class LoopResult(msgspec.Struct, frozen=True, kw_only=True):
    """A whole loop, the first sync included."""

    model_bytes: int
    rollouts: list[RolloutResult]


def run_loop(
    settings: Settings, environment: Mapping[str, str], done: Callable[[RolloutResult], object]
) -> LoopResult:
    """Run all rollouts on the connected Ray cluster, then let every actor end in order.

    `environment` is added to that of each actor. Raises `DemoError` when a sync did not
    bring the trainers' weights to the engines.
    """
    actors = _Actors(settings, environment)
    try:
        model_bytes = actors.join()
        before = actors.probe_engines()
        results = []
        for rollout in ("initial", *range(settings.rollouts)):
            reports = [] if isinstance(rollout, str) else actors.train(rollout)
            sync = actors.update_weights()
            with timeline.phase("weight_check", sync=sync.sync, weight_version=sync.weight_version):
                after = actors.probe_engines()
                proof = prove(sync, model_bytes, before, after, actors.probe_trainers())
            before = after
            results.append(_result(rollout, reports, proof))
            done(results[-1])
    except BaseException:
        actors.stop(_LAST_PATIENCE_S)
        raise
    actors.stop(_PATIENCE_S)
    return LoopResult(model_bytes=model_bytes, rollouts=results)


def _result(rollout: int | str, reports: Sequence[TrainReport], proof: SyncProof) -> RolloutResult:
    if not reports:
        return RolloutResult(rollout=rollout, proof=proof)
    return RolloutResult(
        rollout=rollout,
        mean_reward=sum(r.mean_reward for r in reports) / len(reports),
        losses=[sum(each) / len(reports) for each in zip(*(r.losses for r in reports), strict=True)],
        proof=proof,
    )


def prove(
    sync: SyncReport,
    model_bytes: int,
    before: Sequence[Probe],
    after: Sequence[Probe],
    trainers: Sequence[Probe],
) -> SyncProof:
    """Compare what all models say after a sync, and the engines with themselves `before` it.

    Raises `DemoError` where the sync cannot have brought the source's weights to every engine.
    """
    if sync.bytes != model_bytes:
        raise DemoError(f"sync {sync.sync} sent {sync.bytes} bytes of a model of {model_bytes}")
    wanted = trainers[0].tokens
    for kind, probes in (("engine", after), ("trainer", trainers)):
        for index, probe in enumerate(probes):
            if probe.tokens != wanted:
                raise DemoError(f"after sync {sync.sync} {kind} {index} draws other tokens than trainer 0")
    changes = [_largest_change(old, new) for old, new in zip(before, after, strict=True)]
    for index, change in enumerate(changes):
        if change == 0:
            raise DemoError(f"sync {sync.sync} changed no logit of engine {index}")
    return SyncProof(
        sync=sync,
        models=len(after) + len(trainers),
        tokens=sum(map(len, wanted)),
        logit_change=min(changes),
    )


def _largest_change(old: Probe, new: Probe) -> float:
    rows = zip(old.logits, new.logits, strict=True)
    return max(abs(a - b) for row in rows for a, b in zip(*row, strict=True))


class _Actors:
    """All actors of the demo, driven from here."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        import ray

        gpus = 1 if settings.device.startswith("cuda") else 0

        def start(kind: type, gpus: int, *arguments: object) -> Any:
            make = ray.remote(num_cpus=1, num_gpus=gpus, runtime_env={"env_vars": dict(environment)})
            return make(kind).remote(settings, *arguments)

        self._engines = [start(EngineActor, gpus, index) for index in range(settings.engines)]
        self._trainers = [start(TrainerActor, gpus, rank) for rank in range(settings.trainers)]
        self._manager = start(RolloutManagerActor, 0, self._engines)

    def join(self) -> int:
        """Make the trainers a world; returns the model's bytes."""
        port = _get(self._trainers[0].host_store.remote())
        sizes = _get([t.join.remote(port, self._engines, self._manager) for t in self._trainers])
        return int(sizes[0])

    def train(self, rollout: int) -> list[TrainReport]:
        """Generate a rollout and train on it; the trainers wait for the samples themselves."""
        timeline.set_rollout(rollout)
        shares = self._manager.generate.remote(rollout)
        trained = [t.train.remote(rollout, [shares]) for t in self._trainers]
        with timeline.phase("generate"):
            _get(shares)
        return _get(trained)  # type: ignore[no-any-return]

    def update_weights(self) -> SyncReport:
        """One sync; the report of the rank that sent."""
        return _get([t.update_weights.remote() for t in self._trainers])[0]  # type: ignore[no-any-return]

    def probe_engines(self) -> list[Probe]:
        """What each engine's model says to the fixed prompts."""
        return _get([e.probe.remote() for e in self._engines])  # type: ignore[no-any-return]

    def probe_trainers(self) -> list[Probe]:
        """What each trainer's model says to the fixed prompts."""
        return _get([t.probe.remote() for t in self._trainers])  # type: ignore[no-any-return]

    def stop(self, patience_s: float) -> None:
        """Let them end in order; one that is dead already has nothing to say."""
        import ray

        stops = [a.stop.remote() for a in (*self._trainers, *self._engines, self._manager)]
        ray.wait(stops, num_returns=len(stops), timeout=patience_s)


def _get(references: Any) -> Any:
    """Results of actor calls. Raises `DemoError` with the actor's own error, or when it is stuck."""
    import ray

    try:
        return ray.get(references, timeout=_PATIENCE_S)
    except ray.exceptions.GetTimeoutError as error:
        raise DemoError(f"an actor did not answer for {_PATIENCE_S:.0f} s") from error
    except ray.exceptions.RayError as error:
        raise DemoError(f"an actor failed: {error}") from error
