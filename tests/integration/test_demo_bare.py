"""The demo's trainers and engines as bare gloo processes, recorded."""

from __future__ import annotations

import time

import pytest
from demo_records import by_name, of_role, parent_names

pytest.importorskip("torch")

from slime_profiler_plugin.demo import BareRun, ProcessSetup, Settings, run_bare
from slime_profiler_plugin.demo.driver import shared_environment
from slime_profiler_plugin.identity import RUN_ID_VARIABLE
from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.read import read_run

SETTINGS = Settings(rollouts=2, engines=1)
#: The writer sleeps for a period between writes; a busy machine wakes it up late.
LATE_NS = 500_000_000


def recorded(out, config="timeline"):
    environment = shared_environment(out, config)
    return ProcessSetup(environment=environment), RunPaths(out, environment[RUN_ID_VARIABLE]).root


@pytest.fixture(scope="module")
def reports_and_run(tmp_path_factory):
    setup, folder = recorded(tmp_path_factory.mktemp("bare"))
    reports = run_bare(SETTINGS, setup)
    return reports, read_run([folder])


@pytest.fixture(scope="module")
def run(reports_and_run):
    return reports_and_run[1]


@pytest.fixture(scope="module")
def trainers(run):
    return of_role(run, "actor")


@pytest.fixture(scope="module")
def engine(run):
    (engine,) = of_role(run, "engine")
    return engine


def test_every_rank_reports_every_rollout(reports_and_run):
    reports, _ = reports_and_run
    assert sorted((r.rank, r.train.rollout) for r in reports) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_training_is_the_same_without_the_profiler(reports_and_run):
    reports, _ = reports_and_run
    plain = run_bare(SETTINGS)
    assert {(r.rank, r.train.rollout): r.train.losses for r in plain} == {
        (r.rank, r.train.rollout): r.train.losses for r in reports
    }


def test_every_process_of_one_attempt_ends_clean_and_drops_nothing(run):
    assert [(p.process.role, p.process.rank) for p in (*of_role(run, "actor"), *of_role(run, "engine"))] == [
        ("actor", 0),
        ("actor", 1),
        ("engine", 0),
    ]
    for records in run.processes:
        assert records.process.attempt == 0
        assert records.end is not None
        assert (records.drops, records.opens, records.damage) == ([], [], [])


def test_each_step_has_its_phases_once_on_every_rank(trainers):
    steps = [(r, s) for r in range(SETTINGS.rollouts) for s in range(SETTINGS.steps)]
    for records in trainers:
        phases = by_name(records)
        for name in ("train_step", "forward_backward", "grad_sync", "optimizer"):
            assert [(p.rollout, p.step) for p in phases[name]] == steps, name
        for name in ("forward", "backward"):
            assert [(p.rollout, p.step) for p in phases[name]] == [
                key for key in steps for _ in range(SETTINGS.micro_batches)
            ]
        for name in ("train_wait", "data_preprocess", "log_probs", "advantages"):
            assert [p.rollout for p in phases[name]] == list(range(SETTINGS.rollouts)), name


def test_phases_stand_where_the_vocabulary_says(trainers):
    for records in trainers:
        parents = parent_names(records)
        for name, seen in parents.items():
            assert seen <= set(records.phase_defs[name].parents or (None,)), name


def test_each_rollout_is_followed_by_its_sync(trainers):
    for records in trainers:
        syncs = [(p.sync, p.rollout, p.weight_version) for p in by_name(records)["weight_sync"]]
        assert syncs == [(0, "initial", "1"), (1, 0, "2"), (2, 1, "3")]


def test_the_source_alone_sends_and_all_its_bytes_are_the_model(reports_and_run, trainers):
    reports, _ = reports_and_run
    source, other = (by_name(records) for records in trainers)
    (model_bytes,) = {r.sync.bytes for r in reports if r.rank == 0}
    sent = source["bucket_send"]
    for sync in range(3):
        buckets = [p for p in sent if p.sync == sync]
        assert len(buckets) > 2
        assert [p.bucket for p in buckets] == list(range(len(buckets)))
        assert sum(p.bytes for p in buckets) == model_bytes
        assert {p.transport for p in buckets} == {"nccl"}
        assert all(p.bytes <= SETTINGS.bucket_bytes for p in buckets)
    assert {p.source for p in sent} == {trainers[0].source}
    assert "bucket_send" not in other
    assert [p.sync for p in source["connect_engines"]] == [0]
    assert len(other["barrier"]) == len(source["barrier"]) == 9
    for name in ("pause_generation", "flush_cache", "continue_generation", "sync_complete"):
        assert [p.sync for p in source[name]] == [0, 1, 2]
        assert name not in other


@pytest.mark.parametrize("name", ["engine_receive", "engine_load"])
def test_the_engine_receives_and_loads_what_was_sent(trainers, engine, name):
    def keys(phases):
        return [(p.sync, p.source, p.bucket, p.bytes, p.tensors, p.weight_version) for p in phases]

    phases = by_name(engine)
    assert keys(phases[name]) == keys(by_name(trainers[0])["bucket_send"])
    assert {p.rollout for p in phases[name]} == {None}
    assert {p.engine for p in phases[name]} == {0}
    assert [p.sync for p in phases["engine_flush"]] == [0, 1, 2]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_trainer_loses_at_most_one_period(tmp_path, victim):
    setup, folder = recorded(tmp_path)
    reported: dict[int, int] = {}
    with BareRun(Settings(rollouts=10_000, engines=1), setup) as running:
        for report in running.reports():
            now = time.monotonic_ns()
            if report.rank == victim:
                reported[report.train.rollout] = now
                if now - min(reported.values()) > 2_500_000_000:
                    break
        killed_ns = time.monotonic_ns()
        running.trainers[victim].kill()
        running.trainers[1 - victim].join()
    records = of_role(read_run([folder]), "actor")[victim]
    assert records.end is None
    phases = by_name(records)
    safe_ns = killed_ns - int(records.process.period_s * 1e9) - LATE_NS
    safe = [rollout for rollout, at in reported.items() if at < safe_ns]
    assert safe, "the run was too short to show anything"
    optimizer = [(p.rollout, p.step) for p in phases["optimizer"]]
    syncs = [p.rollout for p in phases["weight_sync"]]
    for rollout in safe:
        assert [s for r, s in optimizer if r == rollout] == list(range(SETTINGS.steps))
        assert syncs.count(rollout) == 1


def test_a_trainer_that_loses_the_others_still_ends_its_record(tmp_path):
    setup, folder = recorded(tmp_path)
    with BareRun(Settings(rollouts=10_000, engines=0), setup) as running:
        next(running.reports())
        running.trainers[1].kill()
        running.trainers[0].join()
        assert running.trainers[0].exitcode == 1
    # Who is killed within its first period may have written nothing yet.
    survivor, *victims = of_role(read_run([folder]), "actor")
    assert [v.end for v in victims] in ([], [None])
    assert survivor.end is not None
    assert any(p.error for p in survivor.phases())
