"""Whole demos with an overlapping loop and a critic, and with processes that die and come back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from demo_loops import Demo, check_within, incarnation_of, run_demo
from demo_records import by_name, of_role
from merged_demo import ask, check_arrows, check_conservation, load, rank_of, read_inputs
from perfetto import Perfetto

from slime_profiler_plugin.demo import Settings
from slime_profiler_plugin.merge import merge_run

pytest.importorskip("torch")
pytest.importorskip("ray")

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
ROLLOUTS = 4
RESTARTED = Settings().rollouts


@pytest.fixture(scope="session")
def overlapping(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return run_demo(
        tmp_path_factory.mktemp("overlapping"),
        fault="generation_and_training_meet",
        rollouts=ROLLOUTS,
        overlap=True,
        update_weights_interval=2,
        critic=True,
    )


@pytest.fixture(scope="session")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Engine 1 and trainer rank 0, which sends the weights, die after training on rollout 1."""
    return run_demo(
        tmp_path_factory.mktemp("restarted"), rollouts=RESTARTED, restart_engine=1, restart_rank=0
    )


def test_weights_are_sent_after_every_second_rollout(overlapping):
    assert [[report["sync"] for report in reports] for reports in overlapping.told["syncs"]] == [
        [0],
        [],
        [1],
        [],
        [2],
    ]
    assert list(overlapping.log("sync")) == ["initial", 1, 3]
    assert list(overlapping.log("generate")) == list(overlapping.log("train")) == list(range(ROLLOUTS))


def test_the_next_rollout_is_asked_for_before_training_and_no_sync_meets_a_generation(overlapping):
    generated, trained = overlapping.log("generate"), overlapping.log("train")
    for rollout in range(ROLLOUTS - 1):
        assert generated[rollout + 1]["start_ns"] < trained[rollout]["start_ns"]
    for sync in overlapping.log("sync").values():
        for entry in generated.values():
            assert entry["end_ns"] < sync["start_ns"] or sync["end_ns"] < entry["start_ns"]


def test_ids_of_training_are_those_of_the_drivers_log(overlapping):
    trained = overlapping.log("train")
    for role, own in (("actor", ["log_probs", "advantages"]), ("critic", ["values"])):
        ranks = of_role(overlapping.run, role)
        assert [r.process.rank for r in ranks] == [0, 1]
        for records in ranks:
            check_within(
                [records], [*own, "train_wait", "data_preprocess", "train_step", "optimizer"], trained
            )


def test_ids_of_generation_are_those_of_the_drivers_log(overlapping):
    generated = overlapping.log("generate")
    (manager,) = of_role(overlapping.run, "rollout_manager")
    check_within([manager], ["generate", "reward", "convert_samples"], generated)
    versions = {rollout: entry["weight_version"] for rollout, entry in generated.items()}
    # rollout 2 was generated while 1 was trained on, after which the weights were sent
    assert versions == {0: "1", 1: "1", 2: "1", 3: "2"}
    for engine in of_role(overlapping.run, "engine"):
        check_within([engine], ["engine_generate"], generated)
        phases = by_name(engine)["engine_generate"]
        assert {phase.rollout: phase.weight_version for phase in phases} == versions


def test_ids_of_syncs_are_those_of_the_drivers_log(overlapping):
    synced = overlapping.log("sync")
    for records in of_role(overlapping.run, "actor"):
        check_within([records], ["weight_sync", "barrier"], synced)
        phases = by_name(records)["weight_sync"]
        assert [(p.rollout, p.sync, p.weight_version) for p in phases] == [
            ("initial", 0, "1"),
            (1, 1, "2"),
            (3, 2, "3"),
        ]
    (driver,) = of_role(overlapping.run, "driver")
    assert [p.rollout for p in by_name(driver)["weight_check"]] == ["initial", 1, 3]
    assert [p.rollout for p in by_name(driver)["update_weights"]] == ["initial", 1, 3]
    for name in ("generate", "train"):
        assert [p.rollout for p in by_name(driver)[name]] == list(range(ROLLOUTS))


def test_a_file_holds_its_own_rollout_while_the_next_one_is_generated(overlapping, perfetto: Perfetto):
    inputs = read_inputs(overlapping.folder)
    for rollout in ("initial", *range(ROLLOUTS)):
        check_conservation(load(overlapping.merged(rollout)), inputs)
        seen = ask(perfetto, overlapping.merged(rollout))
        assert seen.errors == []
        assert {row["rollout"] for row in seen.slices.values() if row["phase_id"] is not None} == {rollout}


def test_generation_of_the_next_rollout_overlaps_training_in_the_file_of_both(
    overlapping, perfetto: Perfetto, tmp_path
):
    (output,) = merge_run([overlapping.folder], (0, ROLLOUTS), tmp_path).outputs
    seen = ask(perfetto, Path(output.path))
    assert seen.errors == []
    extents = {}
    for name, process in (("generate", "rollout_manager rank 0 ·"), ("train_step", "actor rank 0 ·")):
        for rollout in range(ROLLOUTS):
            found = [
                row
                for row in seen.slices.values()
                if (row["name"], row["rollout"]) == (name, rollout) and row["process"].startswith(process)
            ]
            assert len(found) == {"generate": 1, "train_step": 2}[name]
            extents[name, rollout] = (
                min(row["ts"] for row in found),
                max(row["ts"] + row["dur"] for row in found),
            )
    for rollout in range(ROLLOUTS - 1):
        generated, trained = extents["generate", rollout + 1], extents["train_step", rollout]
        assert generated[0] < trained[1], rollout
        assert trained[0] < generated[1], rollout
        assert extents["generate", rollout][1] < extents["train_step", rollout][0]


def test_both_incarnations_of_what_died_are_records_of_one_attempt(restarted):
    assert restarted.run.attempts == [0]
    assert list(restarted.log("restart engine")) == list(restarted.log("restart rank")) == [1]
    seen = Counter((p.process.role, p.process.rank) for p in restarted.run.processes)
    assert seen == {
        ("actor", 0): 2,
        ("actor", 1): 1,
        ("driver", 0): 1,
        ("engine", 0): 1,
        ("engine", 1): 2,
        ("rollout_manager", 0): 1,
    }
    ended = Counter(
        (p.process.role, p.process.rank) for p in restarted.run.processes if p.end is None and not p.opens
    )
    assert ended == {("actor", 0): 1, ("engine", 1): 1}


def test_training_goes_on_as_if_nobody_had_died(restarted, demo):
    """The new rank has the state of the one that lived on, and the new engine the same weights."""
    kept = ("rollout", "mean_reward", "losses")
    assert [{name: turn[name] for name in kept} for turn in restarted.told["training"]] == demo["training"]


def test_a_new_sender_counts_its_syncs_anew_and_weight_versions_go_on(restarted):
    syncs = [
        [(r["sync"], r["source"], r["weight_version"]) for r in each] for each in restarted.told["syncs"]
    ]
    first, second = (records.source for records in of_role(restarted.run, "actor")[:2])
    assert syncs == [
        [(0, first, "1")],
        [(1, first, "2")],
        [(0, second, "3")],
        [(1, second, "4")],
    ]


def test_conservation_holds_in_every_file(restarted):
    inputs = read_inputs(restarted.folder)
    for rollout in ("initial", *range(RESTARTED)):
        check_conservation(load(restarted.merged(rollout)), inputs)


def test_the_file_of_the_rollout_shows_both_incarnations(restarted, perfetto: Perfetto):
    seen = ask(perfetto, restarted.merged(1))
    assert seen.errors == []
    shown = {
        (rank_of(row), incarnation_of(row["process"]), row["name"])
        for row in seen.slices.values()
        if row["phase_id"] is not None and rank_of(row) is not None
    }
    # the dead trained and generated, the new ones synced
    assert (("actor", 0), 1, "train_step") in shown
    assert (("actor", 0), 2, "bucket_send") in shown
    assert (("engine", 1), 1, "engine_generate") in shown
    assert (("engine", 1), 2, "engine_receive") in shown
    assert not {(("actor", 0), 1, "bucket_send"), (("actor", 0), 2, "train_step")} & shown
    early = {row["process"] for row in seen.slices.values() if "ended early" in (row["process"] or "")}
    assert {(rank_of({"process": process}), incarnation_of(process)) for process in early} == {
        (("actor", 0), 1),
        (("engine", 1), 1),
    }


@pytest.mark.parametrize("rollout", ["initial", *range(RESTARTED), (0, RESTARTED)])
def test_arrows_never_join_incarnations(restarted, perfetto: Perfetto, tmp_path, rollout):
    """The range has sync 1 of both senders, with the same buckets."""
    path = restarted.merged(rollout) if not isinstance(rollout, tuple) else None
    if path is None:
        (output,) = merge_run([restarted.folder], rollout, tmp_path).outputs
        path = Path(output.path)
    seen = ask(perfetto, path)
    assert seen.errors == []
    syncs = 1 if not isinstance(rollout, tuple) else RESTARTED
    check_arrows(seen, syncs * restarted.told["syncs"][0][0]["buckets"], engines=2)
    for send, receive in seen.bucket_arrows():
        for field in ("rollout", "sync", "bucket", "source", "attempt"):
            assert send[field] == receive[field], field
        late = send["rollout"] != "initial" and send["rollout"] >= 1
        assert incarnation_of(send["process"]) == (2 if late else 1)
        restarts = rank_of(receive) == ("engine", 1)
        assert incarnation_of(receive["process"]) == (2 if late and restarts else 1)
    joined = Counter((s["source"], s["sync"], s["bucket"], rank_of(r)) for s, r in seen.bucket_arrows())
    assert set(joined.values()) == {1}
