"""Whole demos in every combination of loop, restart and transport that a test can afford."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, NamedTuple

import pytest
from demo_loops import Demo, check_within, run_demo
from demo_records import by_name, of_role
from merged_demo import ask, check_conservation, load, read_inputs
from perfetto import Perfetto

from slime_profiler_plugin.demo import Settings

pytest.importorskip("torch")
pytest.importorskip("ray")

pytestmark = [pytest.mark.full, pytest.mark.ray, pytest.mark.timeout(400)]
SHAPES: dict[str, dict[str, Any]] = {
    "overlap_and_restarts": {
        "overlap": True,
        "update_weights_interval": 2,
        "rollouts": 5,
        "restart_engine": 0,
        "restart_rank": 1,
    },
    "every_third_with_critic": {
        "trainers": 3,
        "engines": 1,
        "rollouts": 6,
        "update_weights_interval": 3,
        "critic": True,
    },
    "never_again": {"rollouts": 3, "update_weights_interval": 9, "overlap": True},
    "ipc": {"transport": "ipc", "restart_engine": 1, "restart_rank": 0, "overlap": True},
    "ipc_fewer_engines": {"transport": "ipc", "trainers": 3, "engines": 2, "restart_rank": 1},
    "disk": {"transport": "disk", "restart_engine": 0, "restart_rank": 1, "critic": True},
    "disk_overlap": {"transport": "disk", "overlap": True, "update_weights_interval": 2, "restart_rank": 0},
    "disk_delta_engine": {"transport": "disk_delta", "restart_engine": 1, "rollouts": 4},
    "disk_delta_rank": {"transport": "disk_delta", "restart_rank": 0, "overlap": True, "rollouts": 4},
    "disk_delta_interval": {"transport": "disk_delta", "trainers": 3, "update_weights_interval": 2},
}
#: From, to, and whether each start has an end in every engine or in one.
JOINS = {
    "nccl": ("bucket_send", "engine_receive", True),
    "ipc": ("bucket_send", "engine_receive", False),
    "disk": ("shard_write", "engine_load", True),
    "disk_delta": ("delta_publish", "engine_pull", True),
}


class Made(NamedTuple):
    """A demo and what it was made of."""

    demo: Demo
    settings: Settings

    @property
    def rollouts(self) -> list[int | str]:
        return ["initial", *range(self.settings.rollouts)]

    @property
    def synced(self) -> list[int | str]:
        """Rollouts that a weight sync follows, worked out from the settings alone."""
        settings = self.settings
        regular = [r for r in range(settings.rollouts) if (r + 1) % settings.update_weights_interval == 0]
        new_engine = [] if settings.restart_engine is None else [settings.rollouts // 2]
        return ["initial", *sorted({*regular, *new_engine})]


@pytest.fixture(scope="module", params=list(SHAPES))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    settings = {"engines": 2, "rollouts": 3, **SHAPES[request.param]}
    return Made(run_demo(tmp_path_factory.mktemp(request.param), **settings), Settings(**settings))


def test_syncs_follow_where_they_should_and_are_proved(made):
    assert list(made.demo.log("sync")) == made.synced
    assert list(made.demo.log("generate")) == list(made.demo.log("train")) == made.rollouts[1:]
    # one proof for each, or the demo would have failed
    assert [turn["rollout"] for turn in made.demo.told["training"]] == made.synced
    sizes = {sum(report["bytes"] for report in reports) for reports in made.demo.told["syncs"] if reports}
    expected = made.demo.told["model_bytes"]
    assert sizes == {expected * (made.settings.engines if made.settings.transport == "ipc" else 1)}


def test_ids_are_those_of_the_drivers_log(made):
    demo, trained, generated = made.demo, made.demo.log("train"), made.demo.log("generate")
    roles = ["actor", "critic"] if made.settings.critic else ["actor"]
    for role in roles:
        for rank in range(made.settings.trainers):
            own = [r for r in of_role(demo.run, role) if r.process.rank == rank]
            check_within(own, ["train_wait", "data_preprocess", "train_step", "optimizer"], trained)
    for rank in range(made.settings.trainers):
        own = [r for r in of_role(demo.run, "actor") if r.process.rank == rank]
        check_within(own, ["weight_sync"], demo.log("sync"))
    check_within(of_role(demo.run, "rollout_manager"), ["generate", "reward"], generated)
    for index in range(made.settings.engines):
        own = [r for r in of_role(demo.run, "engine") if r.process.rank == index]
        check_within(own, ["engine_generate"], generated)
        versions = {p.rollout: p.weight_version for r in own for p in by_name(r)["engine_generate"]}
        assert versions == {rollout: entry["weight_version"] for rollout, entry in generated.items()}


def test_nothing_is_lost_and_perfetto_has_no_complaint(made, perfetto: Perfetto):
    inputs = read_inputs(made.demo.folder)
    for rollout in made.rollouts:
        check_conservation(load(made.demo.merged(rollout)), inputs)
        assert ask(perfetto, made.demo.merged(rollout)).errors == []


def test_arrows_join_what_belongs_together_and_nothing_else(made, perfetto: Perfetto):
    settings = made.settings
    start, end, everywhere = JOINS[settings.transport]
    for rollout in made.rollouts:
        seen = ask(perfetto, made.demo.merged(rollout))
        receivers: dict[int, Counter[str]] = defaultdict(Counter)
        for sent, received in seen.arrows:
            assert (sent["name"], received["name"]) == (start, end)
            for field in ("run_id", "attempt", "rollout", "sync", "source"):
                assert sent[field] == received[field], field
            assert sent["rollout"] == rollout
            receivers[sent["id"]][received["process"]] += 1
        starts = [row["id"] for row in seen.slices.values() if row["name"] == start]
        assert bool(starts) == (rollout in made.synced)
        assert set(receivers) == set(starts)
        for each in receivers.values():
            assert len(each) == (settings.engines if everywhere else 1)
            assert set(each.values()) == {1}
            if isinstance(rollout, int) and rollout >= settings.restarts_after:
                assert not any("ended early" in process for process in each)


def test_restarts_are_incarnations_of_one_attempt(made):
    assert made.demo.run.attempts == [0]
    seen = Counter((p.process.role, p.process.rank) for p in made.demo.run.processes)
    settings = made.settings
    twice = {("actor", settings.restart_rank), ("engine", settings.restart_engine)}
    assert {key for key, count in seen.items() if count > 1} == {key for key in twice if key[1] is not None}
    assert set(seen.values()) <= {1, 2}
    missing = [ranks for ranks in made.demo.run.role_ranks() if ranks.missing]
    assert missing == []
