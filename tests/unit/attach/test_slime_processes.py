"""Phases and rollouts of slime's processes outside of a sync, with small stand-ins for slime."""

from __future__ import annotations

import asyncio
import os
import sys
from types import ModuleType, SimpleNamespace

import pytest
from slime_stand_ins import inside, names

from slime_profiler_plugin import timeline
from slime_profiler_plugin.attach import _frameworks, _wrap
from slime_profiler_plugin.attach.sglang import INDEX_VARIABLE, windows
from slime_profiler_plugin.attach.slime import _hooks, _manager, register
from slime_profiler_plugin.attach.slime import _targets as targets
from slime_profiler_plugin.attach.slime._load_class import around_load_class


def make_actor(stand_ins, role="actor", *, engines=1, **arguments):
    calls, handles = stand_ins["calls"], stand_ins["handles"]
    settings = {"custom_megatron_init_path": None, "debug_train_only": False, "debug_rollout_only": False}
    actor = stand_ins["actor"].MegatronTrainRayActor(2, 1)
    actor.init(SimpleNamespace(**{**settings, **arguments}), role)
    told = ([handles.ActorHandle() for _ in range(engines)], handles.ActorHandle(acquire=True), 1)
    actor.rollout_manager = handles.ActorHandle(get_updatable_engines_and_lock=told)
    actor.weight_updater = stand_ins["distributed"].UpdateWeightFromDistributed(
        SimpleNamespace(is_source=True), [("w", calls.Tensor())]
    )
    return actor


def outer(phases):
    """Name and rollout of what stands in nothing."""
    return [(phase.name, phase.rollout) for phase in phases if phase.parent is None]


def test_a_trainer_tells_each_phase_and_the_rollout_it_is_about(stand_ins, record):
    actor = make_actor(stand_ins)
    actor.update_weights()
    for rollout in (3, 4):
        actor.train(rollout, {})
        actor.save_model(rollout)
        actor.update_weights()
    phases = record()
    turn = ["data_preprocess", "train_rollout", "train_wait", "save_model", "train_wait", "weight_sync"]
    assert outer(phases) == [
        ("trainer_init", "initial"),
        ("train_wait", "initial"),
        ("weight_sync", "initial"),
        # The wait for a rollout's data is that rollout's.
        *(("train_wait", 3), *((name, 3) for name in turn)),
        *(("train_wait", 4), *((name, 4) for name in turn)),
    ]
    assert inside(phases, "train_rollout") == ["ref_log_probs", "log_probs", "advantages", "actor_train"]
    assert inside(phases, "actor_train") == ["train_step", "train_step"]
    assert [p.step for p in phases if p.name == "train_step"] == [0, 1, 0, 1]
    assert inside(phases, "weight_sync")[:2] == ["engine_wait", "connect_engines"]
    syncs = [phase for phase in phases if phase.name == "weight_sync"]
    assert [(p.sync, p.weight_version) for p in syncs] == [(0, "1"), (1, "2"), (2, "3")]
    identity = timeline._recorder._part.identity
    assert (identity.role, identity.rank, identity.world_size) == ("actor", 1, 2)


def test_a_critic_has_values_and_its_role(stand_ins, record):
    actor = make_actor(stand_ins, "critic")
    actor.train(0, {})
    assert outer(record()) == [
        ("trainer_init", "initial"),
        *[(name, 0) for name in ("train_wait", "data_preprocess", "values", "advantages")],
        *[("train_step", 0)] * 2,
    ]
    assert timeline._recorder._part.identity.role == "critic"


def test_a_sync_that_slime_skips_takes_no_number(stand_ins, record):
    actor = make_actor(stand_ins, engines=0)
    actor.update_weights()
    actor.rollout_manager.answers["get_updatable_engines_and_lock"] = (
        [stand_ins["handles"].ActorHandle()],
        stand_ins["handles"].ActorHandle(acquire=True),
        1,
    )
    assert actor.update_weights() == "done"
    syncs = [phase for phase in record() if phase.name == "weight_sync"]
    assert [(phase.sync, phase.weight_version) for phase in syncs] == [(0, "1"), (0, "1")]


def test_a_trainer_that_only_trains_has_no_sync(stand_ins, record):
    make_actor(stand_ins, debug_train_only=True).update_weights()
    assert "weight_sync" not in names(record())


def test_an_actor_that_is_made_again_goes_on_counting(stand_ins, record):
    """As with ``--release-train``: its updater begins with the version that is out."""
    actor = make_actor(stand_ins)
    actor.weight_updater.weight_version = 7
    actor.train(7, {})
    actor.update_weights()
    (sync,) = (phase for phase in record() if phase.name == "weight_sync")
    assert (sync.sync, sync.weight_version, sync.rollout) == (7, "8", 7)


@pytest.mark.usefixtures("record")
def test_the_users_own_init_hook_is_called_and_the_arguments_stay(stand_ins, monkeypatch):
    hooks = ModuleType("hooks_of_mine")
    hooks.seen = []
    hooks.init = lambda arguments: hooks.seen.append(arguments.custom_megatron_init_path)
    monkeypatch.setitem(sys.modules, "hooks_of_mine", hooks)
    actor = make_actor(stand_ins, custom_megatron_init_path="hooks_of_mine.init")
    assert hooks.seen == ["hooks_of_mine.init"]
    assert actor.args.custom_megatron_init_path == "hooks_of_mine.init"
    assert actor.args.seen == "slime_profiler_plugin.attach.slime._trainer.after_megatron_init"


def test_what_the_users_own_init_hook_raises_is_the_users(stand_ins, record, monkeypatch):
    hooks = ModuleType("hooks_of_mine")
    hooks.init = lambda _arguments: 1 / 0
    monkeypatch.setitem(sys.modules, "hooks_of_mine", hooks)
    with pytest.raises(ZeroDivisionError):
        make_actor(stand_ins, custom_megatron_init_path="hooks_of_mine.init")
    assert [phase.error[:17] for phase in record()] == ["ZeroDivisionError"]


def load_manager(stand_ins):
    """The manager's class, as an actor loads it: a copy that came by value."""
    held = stand_ins["manager"].RolloutManager.__ray_metadata__.modified_class
    copy = type("Class", (held,), {})
    descriptor = SimpleNamespace(class_name="RolloutManager", module_name="slime.ray.rollout")
    bound = _wrap.Bound((None, None, descriptor), {})
    return around_load_class(lambda: copy, bound), held


def test_a_manager_tells_what_it_does_for_which_rollout(stand_ins, record):
    kind, held = load_manager(stand_ins)
    arguments = SimpleNamespace(rollout_num_gpus_per_engine=1, num_gpus_per_node=2)
    manager = kind(arguments, None)
    assert manager.eval(0) == 0
    for rollout in (0, 1):
        assert manager.generate(rollout_id=rollout) == [{"samples": [rollout]}]
        assert (manager.offload(), manager.onload_weights(), manager.onload_kv()) == ("off", "weights", "kv")
    assert manager.eval(0) == 0
    assert manager.dispose() == "gone"
    turn = ["generate", "convert_samples", "convert_samples", "offload", "onload_weights", "onload_kv"]
    assert outer(record()) == [
        ("eval", 0),
        *((name, 0) for name in turn),
        *((name, 1) for name in turn),
        ("eval", 0),
    ]
    assert timeline._recorder._part.identity.role == "rollout_manager"
    # What a driver sends by value has nothing of ours in it.
    assert "__wrapped__" not in vars(held.generate)


@pytest.mark.usefixtures("record")
def test_another_class_of_that_name_is_left_alone():
    kind = type("RolloutManager", (), {"generate": lambda _self, rollout_id: rollout_id})
    descriptor = SimpleNamespace(class_name="RolloutManager", module_name="mine")
    found = around_load_class(lambda: kind, _wrap.Bound((None, None, descriptor), {}))
    assert not hasattr(found.generate, "__wrapped__")


@pytest.mark.usefixtures("record")
def test_windows_of_engines_are_asked_for_by_rollout(stand_ins, monkeypatch):
    asked = []

    class Windows:
        def on_rollout(self, rollout, urls):
            asked.append((rollout, urls))

        def close(self):
            asked.append("closed")

    monkeypatch.setattr(windows, "EngineWindows", Windows)
    kind, _ = load_manager(stand_ins)
    manager = kind(SimpleNamespace(rollout_num_gpus_per_engine=1, num_gpus_per_node=2), None)
    manager.generate(5)
    manager.dispose()
    urls = ["http://127.0.0.1:15000", "http://127.0.0.1:15001"]
    assert asked == [(5, urls), "closed"]


def test_rewards_belong_to_what_the_manager_serves(stand_ins, record):
    rewards = stand_ins["generate"]
    _manager._serving[:] = [6]

    async def score():
        return await rewards.async_rm(None, "sample"), await rewards.batched_async_rm(None, ["a", "b"])

    assert asyncio.run(score()) == (1.0, [1.0, 1.0])
    assert [(p.name, p.rollout, p.attrs["samples"]) for p in record()] == [
        ("reward", 6, 1),
        ("reward", 6, 2),
    ]


def test_an_engine_learns_which_one_it_is_before_it_starts(stand_ins, record, monkeypatch):
    monkeypatch.setitem(os.environ, INDEX_VARIABLE, "")
    arguments = SimpleNamespace(rollout_num_gpus_per_engine=16, num_gpus_per_node=8)
    engine = stand_ins["engine"].SGLangEngine(arguments, rank=2)
    assert engine.init("127.0.0.1:1", 1, 2) == "1"
    assert engine._make_request("update_weights_from_disk", {"weight_version": "4"})
    engine.node_rank = 1
    engine._make_request("flush")
    (request,) = record()
    assert request.attrs["endpoint"] == "update_weights_from_disk"
    assert (request.name, request.weight_version, request.rollout) == ("engine_request", "4", None)


def test_a_timer_of_the_users_own_is_a_phase(stand_ins, record):
    timer = stand_ins["timer"].timer
    with timer("my_step"), timer("no phase/at all"), timer("update_weights"):
        pass
    assert names(record()) == ["my_step"]


@pytest.mark.usefixtures("stand_ins")
def test_every_hook_is_placed_and_taken_back():
    def bodies():
        found = {}
        for target in (*_hooks.WRAPPED, *_hooks.REACHED):
            owner = sys.modules.get(target.module)
            if owner is None:
                continue
            *path, name = target.name.split(".")
            for part in path:
                owner = getattr(owner, part)
            found[target] = getattr(owner, name)
        return found

    before = bodies()
    register()
    assert {t for t, body in bodies().items() if body == before[t]} == set()
    states = {state.target: state.status for state in _wrap.states()}
    assert {states[target] for target in before} == {"attached"}
    _wrap.unwrap_all()
    assert bodies() == before


def test_it_is_one_of_the_frameworks():
    assert set(targets.TARGETS) <= set(_frameworks.targets())
