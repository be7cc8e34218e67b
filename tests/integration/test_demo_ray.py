"""One whole demo on a Ray cluster of its own: what it recorded, merged and left behind."""

from __future__ import annotations

import pytest
from demo_records import by_name, of_role

pytest.importorskip("torch")
pytest.importorskip("ray")

from slime_profiler_plugin.analyze import phase_table
from slime_profiler_plugin.demo import Settings
from slime_profiler_plugin.layout import RunPaths, rollout_name
from slime_profiler_plugin.read import read_run

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
SETTINGS = Settings()
SYNCS = ["initial", 0, 1, 2]
#: The writer sleeps for a period between writes; a busy machine wakes it up late.
LATE_NS = 500_000_000


@pytest.fixture(scope="session")
def run(demo):
    return read_run([demo["run_folder"]])


def test_it_tells_each_rollout_and_its_proof(demo):
    told = [line for line in demo["lines"] if "proved" in line]
    assert [line.partition(":")[0] for line in told] == ["initial", "rollout 0", "rollout 1", "rollout 2"]
    assert all("tokens equal in 4 models" in line for line in told)


def test_there_is_a_merged_file_for_initial_and_each_rollout(demo):
    paths = RunPaths.at(demo["run_folder"])
    assert sorted(paths.merged.iterdir()) == sorted(paths.merged_file(rollout_name(r)) for r in SYNCS)


def test_every_process_has_its_identity(run):
    seen = sorted((p.process.role, p.process.rank, p.process.world_size) for p in run.processes)
    assert seen == [
        ("actor", 0, 2),
        ("actor", 1, 2),
        ("driver", 0, 1),
        ("engine", 0, 2),
        ("engine", 1, 2),
        ("rollout_manager", 0, 1),
    ]
    assert {p.process.run_id for p in run.processes} == {run.run_id}
    assert {p.process.attempt for p in run.processes} == {0}
    assert [p.process.engine for p in of_role(run, "engine")] == [{"index": 0}, {"index": 1}]
    assert len({p.process.incarnation for p in run.processes}) == 6


def test_no_process_ended_early_or_lost_anything(run):
    assert run.damage == []
    for records in run.processes:
        assert records.end is not None, records.source
        assert (records.drops, records.opens) == ([], []), records.source


def test_each_step_has_its_phases_once_on_every_rank(run):
    steps = [(r, s) for r in range(SETTINGS.rollouts) for s in range(SETTINGS.steps)]
    for records in of_role(run, "actor"):
        phases = by_name(records)
        for name in ("train_step", "forward_backward", "grad_sync", "optimizer"):
            assert [(p.rollout, p.step) for p in phases[name]] == steps, name


def test_bytes_of_each_sync_are_the_model(demo, run):
    sent = by_name(of_role(run, "actor")[0])["bucket_send"]
    sums = {r: sum(p.bytes for p in sent if p.rollout == r) for r in SYNCS}
    assert sums == dict.fromkeys(SYNCS, demo["model_bytes"])
    assert "bucket_send" not in by_name(of_role(run, "actor")[1])


def test_each_bucket_sent_is_received_and_loaded_by_each_engine(run):
    def keys(phases):
        return [(p.sync, p.source, p.bucket, p.bytes, p.weight_version) for p in phases]

    source = of_role(run, "actor")[0]
    sent = keys(by_name(source)["bucket_send"])
    assert len(sent) == len(set(sent)) > 4
    assert {key[1] for key in sent} == {source.source}
    for index, engine in enumerate(of_role(run, "engine")):
        phases = by_name(engine)
        for name in ("engine_receive", "engine_load"):
            assert keys(phases[name]) == sent
            assert {p.engine for p in phases[name]} == {index}


def test_a_receive_overlaps_its_send(run):
    sent = by_name(of_role(run, "actor")[0])["bucket_send"]
    for engine in of_role(run, "engine"):
        for send, receive in zip(sent, by_name(engine)["engine_receive"], strict=True):
            assert receive.start_ns < send.start_ns + send.dur_ns
            assert receive.start_ns + receive.dur_ns > send.start_ns


def test_engines_generate_inside_the_manager_s_rollout(run):
    (manager,) = of_role(run, "rollout_manager")
    whole = {p.rollout: p for p in by_name(manager)["generate"]}
    assert sorted(whole) == [0, 1, 2]
    for engine in of_role(run, "engine"):
        for part in by_name(engine)["engine_generate"]:
            outer = whole[part.rollout]
            assert outer.start_ns <= part.start_ns
            assert part.start_ns + part.dur_ns <= outer.start_ns + outer.dur_ns


def test_the_manager_s_tasks_keep_their_parents_apart(run):
    (manager,) = of_role(run, "rollout_manager")
    phases = by_name(manager)
    whole = {p.id: p.rollout for p in phases["generate"]}
    rewards = phases["reward"]
    assert len(rewards) == 3 * SETTINGS.engines
    assert all(whole[p.parent] == p.rollout for p in rewards)
    assert len({p.task for p in rewards}) == len(rewards)


def test_trainers_wait_while_engines_generate(run):
    (manager,) = of_role(run, "rollout_manager")
    generated = {p.rollout: p.start_ns + p.dur_ns for p in by_name(manager)["generate"]}
    for records in of_role(run, "actor"):
        for wait in by_name(records)["train_wait"]:
            assert wait.start_ns + wait.dur_ns > generated[wait.rollout]


def test_the_table_has_every_role(run):
    table = phase_table(run, 2)
    assert [(c.role, c.rank) for c in table.columns] == [
        ("actor", 0),
        ("actor", 1),
        ("driver", 0),
        ("engine", 0),
        ("engine", 1),
        ("rollout_manager", 0),
    ]
    cells = {row.phase: row.cells for row in table.rows}
    assert [cell and cell.count for cell in cells["optimizer"]] == [2, 2, None, None, None, None]
    assert [cell and cell.count for cell in cells["weight_sync"]] == [1, 1, None, None, None, None]
    assert [cell and cell.count for cell in cells["engine_generate"]] == [None, None, None, 1, 1, None]


def test_it_fits_in_4_gb(demo):
    assert demo["peak_bytes"] is None or demo["peak_bytes"] < 4 * 2**30


def test_nothing_is_left_running_or_lying_about(demo):
    assert demo["left_running"] == 0
    assert demo["left_behind"] == []


def ticks(told):
    """Step numbers in the only record file, and its process."""
    (records,) = read_run([told["run_folder"]]).processes
    assert records.process.role == "reward"
    return sorted(p.step for p in records.phases()), records


@pytest.mark.parametrize("how", ["ray_kill", "job_end"])
def test_an_end_that_runs_no_exit_code_loses_at_most_one_period(demo, how):
    told = demo[how]
    found, records = ticks(told)
    safe_ns = told["ended_ns"] - int(records.process.period_s * 1e9) - LATE_NS
    safe = [number for number, end_ns in enumerate(told["ends"]) if end_ns < safe_ns]
    assert safe, "the actor lived too short to show anything"
    assert found == list(range(len(found)))
    assert len(found) >= len(safe)


def test_sigterm_inside_an_actor_loses_nothing(demo):
    found, records = ticks(demo["sigterm"])
    assert found == list(range(len(demo["sigterm"]["ends"])))
    assert records.end is not None
    assert records.drops == []


def test_sigterm_ends_an_actor_as_it_does_without_us(demo):
    assert "Exit code: 1." in demo["sigterm_off"]["told"]
    assert demo["sigterm"]["told"] == demo["sigterm_off"]["told"]
