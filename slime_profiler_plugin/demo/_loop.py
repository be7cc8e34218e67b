"""The RL loop over Ray actors: generate, train, sync, and prove that the sync was one.

With `Settings.overlap`, rollout r + 1 is generated while r is trained on, with the weights that were
sent last; no weights are sent while engines generate. With ``update_weights_interval=2``::

    generate      0   1   2       3
    train             0   1       2   3
    sync      *               *           *
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeAlias

import msgspec

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.phases import define_phase

from ._fleet import Fleet, wait_for
from ._proof import SyncProof, prove
from ._settings import Settings
from .sync import remove_old_versions
from .trainer import TrainReport

define_phase("train", roles=("driver",), doc="Wait until the trainers have trained on a rollout.")
define_phase("update_weights", roles=("driver",), doc="Wait until the trainers have sent the weights.")
define_phase("weight_check", roles=("driver",), doc="Compare what trainers and engines say after a sync.")
define_phase("restart", roles=("driver",), doc="Let a process die, and start another in its place.")

#: After a failure some may be stuck in a collective that will never end.
_LAST_PATIENCE_S: Final = 10.0

What: TypeAlias = Literal["generate", "train", "sync", "restart engine", "restart rank"]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A thing that the driver had others do, in its own words and not the timeline's.

    From `start_ns`, when it asked, to `end_ns`, when it knew; on its monotonic clock. `weight_version`: of
    a sync, what it brought; of ``generate``, what the engines had.
    """

    what: What
    rollout: int | str
    start_ns: int
    end_ns: int
    weight_version: str | None = None


class RolloutResult(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the loop; `rollout` is ``"initial"`` for the sync before the first.

    `restarted` are those that died after training; `proof` is ``None`` where no sync followed.
    """

    rollout: int | str
    mean_reward: float | None = None
    losses: list[float] = []
    restarted: list[str] = []
    proof: SyncProof | None = None


class LoopResult(msgspec.Struct, frozen=True, kw_only=True):
    """A whole loop, the first sync included; `log` is what the driver did, in the order in which it ended."""

    model_bytes: int
    rollouts: list[RolloutResult]
    log: list[Done]


def run_loop(
    settings: Settings, environment: Mapping[str, str], done: Callable[[RolloutResult], object]
) -> LoopResult:
    """Run all rollouts on the connected Ray cluster, then let every actor end in order.

    `environment` is added to that of each actor. Raises `DemoError` when a sync did not
    bring the trainers' weights to the engines.
    """
    fleet = Fleet(settings, environment)
    try:
        loop = _Loop(settings, fleet)
        results = []
        for result in loop.turns():
            results.append(result)
            done(result)
    except BaseException:
        fleet.stop(_LAST_PATIENCE_S)
        raise
    fleet.stop()
    return LoopResult(model_bytes=loop.model_bytes, rollouts=results, log=loop.log)


class _Generation:
    """Samples that are being generated."""

    def __init__(self, rollout: int, shares: Any, weight_version: str | None) -> None:
        self.rollout = rollout
        self.shares = shares
        self.weight_version = weight_version
        self.start_ns = time.monotonic_ns()
        self.is_done = False


class _Loop:
    def __init__(self, settings: Settings, fleet: Fleet) -> None:
        self._settings = settings
        self._fleet = fleet
        self._weight_version: str | None = None
        self.log: list[Done] = []
        self.model_bytes = fleet.join()
        #: What the engines said last.
        self._said = fleet.probe_engines()

    def turns(self) -> Iterator[RolloutResult]:
        settings = self._settings
        yield RolloutResult(rollout="initial", proof=self._sync("initial"))
        coming: _Generation | None = None
        for rollout in range(settings.rollouts):
            timeline.set_rollout(rollout)
            current = coming or self._generate(rollout)
            coming = None
            if settings.overlap:
                self._wait(current)
                if rollout + 1 < settings.rollouts:
                    coming = self._generate(rollout + 1)
            started = time.monotonic_ns()
            trained = self._fleet.train(rollout, current.shares)
            # Without overlap the trainers wait for the samples themselves, as the driver does here.
            self._wait(current)
            with timeline.phase("train"):
                reports: list[TrainReport] = wait_for(trained)
            self._note("train", rollout, started)
            syncs = (rollout + 1) % settings.update_weights_interval == 0
            dies = rollout == settings.restarts_after
            if coming is not None and (syncs or dies):
                self._wait(coming)
            restarted = self._restart(rollout) if dies else []
            # A new engine has no weights yet, and cannot wait for the next regular sync.
            needs_weights = dies and settings.restart_engine is not None
            yield RolloutResult(
                rollout=rollout,
                mean_reward=sum(r.mean_reward for r in reports) / len(reports),
                losses=[sum(each) / len(reports) for each in zip(*(r.losses for r in reports), strict=True)],
                restarted=restarted,
                proof=self._sync(rollout) if syncs or needs_weights else None,
            )

    def _generate(self, rollout: int) -> _Generation:
        return _Generation(rollout, self._fleet.generate(rollout), self._weight_version)

    def _wait(self, generation: _Generation) -> None:
        if generation.is_done:
            return
        with timeline.rollout(generation.rollout), timeline.phase("generate"):
            wait_for(generation.shares)
        generation.is_done = True
        self._note("generate", generation.rollout, generation.start_ns, generation.weight_version)

    def _sync(self, rollout: int | str) -> SyncProof:
        started = time.monotonic_ns()
        with timeline.phase("update_weights"), timeline.watch_sync():
            reports = self._fleet.update_weights()
        self._weight_version = reports[0].weight_version
        self._note("sync", rollout, started, self._weight_version)
        with timeline.phase("weight_check", **reports[0].fields()):
            after = self._fleet.probe_engines()
            proof = prove(reports, self.model_bytes, self._said, after, self._fleet.probe_trainers())
        self._said = after
        remove_old_versions(self._settings, reports[0].weight_version)
        return proof

    def _restart(self, rollout: int) -> list[str]:
        engine, rank = self._settings.restart_engine, self._settings.restart_rank
        restarted = []
        if engine is not None:
            with self._noted("restart engine", rollout):
                self._fleet.restart_engine(engine)
                self._said = self._fleet.probe_engines()
            restarted.append(f"engine {engine}")
        if rank is not None:
            with self._noted("restart rank", rollout):
                self._fleet.restart_trainer(rank, rollout)
            restarted.append(f"trainer rank {rank}")
        return restarted

    @contextmanager
    def _noted(self, what: What, rollout: int) -> Iterator[None]:
        started = time.monotonic_ns()
        with timeline.phase("restart"):
            yield
        self._note(what, rollout, started)

    def _note(self, what: What, rollout: int | str, start_ns: int, weight_version: str | None = None) -> None:
        self.log.append(
            Done(
                what=what,
                rollout=rollout,
                start_ns=start_ns,
                end_ns=time.monotonic_ns(),
                weight_version=weight_version,
            )
        )
