"""Phases of a trainer rank, and the rollout that it is about."""

from __future__ import annotations

import importlib
from typing import Any, Final

from slime_profiler_plugin._timeline import Span, timeline
from slime_profiler_plugin.attach._failures import FAILURE, failed, is_theirs
from slime_profiler_plugin.attach._open_phases import PHASES
from slime_profiler_plugin.attach._wrap import Bound
from slime_profiler_plugin.attach.megatron import tell_ranks

from ._sync import Call, argument, syncing


class Waiting:
    """The time between calls of a trainer rank, which is what it waits.

    slime's own timer ``train_wait`` runs through weight syncs and checkpoints too. What it waits for is told
    by the next call: before one that trains, it was that rollout's data.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._span: Span | None = None

    def leave(self) -> None:
        """A call ends."""
        self._depth -= 1
        if self._depth == 0:
            self._span = timeline.begin("train_wait")

    def enter(self, rollout: Any = None) -> None:
        """A call begins, about `rollout` if it says so."""
        self._depth += 1
        span, self._span = self._span, None
        if span is not None:
            if rollout is not None:
                span.set_rollout(rollout)
            span.end()


_waiting: Final = Waiting()


def _called(call: Call, rollout: Any = None) -> Any:
    """The result of `call`, during which the rank does not wait."""
    try:
        _waiting.enter(rollout)
        return call()
    finally:
        _waiting.leave()


def around_init(call: Call, bound: Bound) -> Any:
    """The rank learns who it is, and makes its model."""
    actor = bound.args[0]
    timeline.start(role=str(argument(bound, 2, "role")), rank=actor._rank, world_size=actor._world_size)

    def init() -> Any:
        with timeline.phase("trainer_init"):
            return call()

    return _called(init)


def around_train(call: Call, bound: Bound) -> Any:
    """A rollout is trained on: from here on everything is about it, its weight sync too."""
    rollout = argument(bound, 1, "rollout_id")

    def train() -> Any:
        timeline.set_rollout(rollout)
        return call()

    return _called(train, rollout)


def around_save(call: Call, _bound: Bound) -> Any:
    """A checkpoint; slime's timer is the phase."""
    return _called(call)


def around_update(call: Call, bound: Bound) -> Any:
    """A weight sync, with what the actor does around the updater's."""
    actor = bound.args[0]
    arguments = actor.args
    if not timeline.on or arguments.debug_train_only or arguments.debug_rollout_only:
        return call()

    def update() -> Any:
        try:
            with syncing(actor.weight_updater):
                return call()
        finally:
            if getattr(arguments, "release_train", False):
                timeline.flush()  # the next that happens to this process is that the driver kills it

    return _called(update)


def around_model_train(call: Call, bound: Bound) -> Any:
    """The steps of a rollout, also where no actor of slime's calls it."""
    timeline.set_rollout(argument(bound, 0, "rollout_id"))
    return call()


def around_train_step(call: Call, bound: Bound) -> Any:
    """One step of the optimizer."""
    return PHASES.around("train_step", call, {"step": argument(bound, 2, "step_id")})


def around_forward_only(call: Call, bound: Bound) -> Any:
    """A pass without gradients: log-probabilities of one of the models, or the critic's values."""
    gives = getattr(argument(bound, 0, "f"), "__name__", "")
    prefix = argument(bound, 5, "store_prefix") or ""
    return PHASES.around("values" if gives == "get_values" else f"{prefix}log_probs", call, {})


def around_advantages(call: Call, _bound: Bound) -> Any:
    """Advantages and returns."""
    return PHASES.around("advantages", call, {})


_ABSENT: Final = object()
_OPTION: Final = "custom_megatron_init_path"
#: What the user's own option said.
_theirs: Final[list[Any]] = []


def around_megatron_init(call: Call, bound: Bound) -> Any:
    """Megatron is set up; at the end of it slime calls ``--custom-megatron-init-path``, which is ours now.

    Only for this call, and only here: what other processes are told and what a checkpoint keeps of the
    arguments stays as it was.
    """
    arguments = argument(bound, 0, "args")
    theirs = getattr(arguments, _OPTION, _ABSENT)
    if not timeline.on or theirs is _ABSENT:
        return call()
    _theirs[:] = [theirs]
    setattr(arguments, _OPTION, f"{__name__}.after_megatron_init")
    try:
        return call()
    finally:
        _give_back(arguments)


def after_megatron_init(arguments: Any) -> None:
    """Called by slime: the ranks are known from here on. Then what the user's own option names."""
    theirs = _theirs[0] if _theirs else None
    _give_back(arguments)
    try:
        tell_ranks()
    except FAILURE as error:
        if is_theirs(error):
            raise
        failed("slime's Megatron hook", error)
    if theirs:
        importlib.import_module("slime.utils.misc").load_function(theirs)(arguments)


def _give_back(arguments: Any) -> None:
    if _theirs:
        setattr(arguments, _OPTION, _theirs.pop())
