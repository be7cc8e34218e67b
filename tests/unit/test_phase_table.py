from __future__ import annotations

import pytest

from slime_profiler_plugin.analyze import Cell, Column, phase_table
from slime_profiler_plugin.read import read_run
from slime_profiler_plugin.testing import MS, ProcessFile, write_synthetic_run


@pytest.fixture
def run(tmp_path):
    return read_run([write_synthetic_run(tmp_path, trainers=2, engines=2, rollouts=2, steps=2).folder])


def test_counts_and_times_by_role_and_rank(run):
    table = phase_table(run, 1)
    assert table.columns == (
        Column("actor", 0),
        Column("actor", 1),
        Column("driver", None),
        Column("engine", 0),
        Column("engine", 1),
    )
    cells = {row.phase: row.cells for row in table.rows}
    step = Cell(2, 2 * 124 * MS)
    assert cells["train_step"] == (step, step, None, None, None)
    assert cells["bucket_send"] == (Cell(3, 3 * 10 * MS), None, None, None, None)
    assert cells["generate"] == (None, None, Cell(1, 390 * MS), None, None)


def test_engine_phases_count_to_the_rollout_of_their_sync(run):
    for rollout in ("initial", 0, 1):
        cells = {row.phase: row.cells for row in phase_table(run, rollout).rows}
        assert cells["engine_load"][-2:] == (Cell(3, 3 * MS), Cell(3, 3 * MS))


def test_children_follow_their_parent(run):
    outline = [(row.phase, row.depth) for row in phase_table(run, 0).rows]
    assert outline == [
        ("train_step", 0),
        ("forward_backward", 1),
        ("grad_sync", 2),
        ("optimizer", 1),
        ("weight_sync", 0),
        ("bucket_send", 1),
        ("barrier", 1),
        ("engine_receive", 0),
        ("engine_load", 0),
        ("generate", 0),
    ]


def test_a_phase_of_several_parents_stands_under_the_first_that_ran(tmp_path):
    process = ProcessFile("several", pid=3, role="actor", rank=0)
    outer = {
        name: process.phase(name, at, at + 10, rollout=0)
        for at, name in ((0, "log_probs"), (20, "train_step"))
    }
    process.phase("forward_backward", 21, 29, rollout=0, parent=outer["train_step"])
    process.write(tmp_path)
    outline = [(row.phase, row.depth) for row in phase_table(read_run([tmp_path / "several"]), 0).rows]
    assert outline == [("log_probs", 0), ("train_step", 0), ("forward_backward", 1)]


def test_an_unknown_rollout_is_named(run):
    with pytest.raises(ValueError, match="no record of rollout 7"):
        phase_table(run, 7)


def test_the_last_attempt_counts_unless_another_is_named(run):
    later = next(p for p in run.processes if (p.process.role, p.process.rank) == ("actor", 1))
    later.process.attempt = 1
    assert phase_table(run, 0).columns == (Column("actor", 1),)
    assert phase_table(run, 0).attempt == 1
    assert Column("actor", 1) not in phase_table(run, 0, attempt=0).columns
