"""Every view of a made-up run returns what was planted in it."""

from __future__ import annotations

import pytest
from planted_run import (
    BUCKET_BYTES,
    LONG,
    MS,
    RANKS,
    ROLLOUTS,
    STRAGGLER,
    TIRED,
    backward_ms,
    write_planted_run,
)

pytest.importorskip("duckdb")

from slime_profiler_plugin.analyze import VIEWS, NoDataError, RunTables
from slime_profiler_plugin.merge import MergeUsageError
from slime_profiler_plugin.testing import ProcessFile


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with RunTables(write_planted_run(tmp_path / "runs")) as found:
        yield found


def _rows(tables, view, **wanted):
    rows = tables.view(view).records()
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def test_the_wall_time_of_a_rollout_is_shared_out_exactly(tables):
    (row,) = _rows(tables, "rollout", rollout="0", role="all")
    assert (row["wall_ms"], row["generate_ms"], row["train_ms"], row["sync_ms"]) == (900, 400, 400, 100)
    assert (row["eval_ms"], row["other_ms"], row["idle_ms"], row["overlap_ms"]) == (0, 0, 0, 0)
    (row,) = _rows(tables, "rollout", rollout="1", role="all")
    assert (row["wall_ms"], row["generate_ms"], row["overlap_ms"], row["idle_ms"]) == (900, 460, 60, 0)
    (row,) = _rows(tables, "rollout", rollout="0", role="driver")
    assert (row["generate_ms"], row["idle_ms"], row["processes"]) == (400, 500, 1)
    (row,) = _rows(tables, "rollout", rollout="0", role="actor")
    assert (row["train_ms"], row["sync_ms"], row["idle_ms"], row["processes"]) == (400, 100, 400, RANKS)


def test_shares_add_up_to_the_wall(tables):
    for row in _rows(tables, "rollout"):
        four = row["generate_ms"] + row["train_ms"] + row["sync_ms"] + row["eval_ms"] - row["overlap_ms"]
        assert four + row["other_ms"] + row["idle_ms"] == pytest.approx(row["wall_ms"])


def test_what_is_left_of_a_time_is_exactly_nothing(tmp_path, monkeypatch):
    # In milliseconds these lengths have no exact sum.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    process = ProcessFile("exact", pid=3, role="actor", rank=0)
    begin = 0
    for name, length in (("generate", 369_087_113), ("train_step", 393_935_777), ("eval", 100_000_001)):
        process.phase(name, begin, begin + length, rollout=0)
        begin += length
    about = {"rollout": 0, "sync": 0, "source": process.source, "transport": "nccl"}
    process.phase("weight_sync", begin, begin + 193_507_911, **about)
    process.phase("bucket_send", begin, begin + 100_000_007, bucket=0, **about)
    process.phase("bucket_ack", begin + 100_000_007, begin + 193_507_911, bucket=0, **about)
    process.write(tmp_path)
    with RunTables(tmp_path / "exact") as tables:
        for row in tables.view("rollout").records():
            assert (row["overlap_ms"], row["idle_ms"], row["other_ms"]) == (0, 0, 0)
        (sync,) = tables.view("sync").records()
        assert (sync["remainder_ms"], sync["named_part"], sync["hidden_ms"]) == (0, 1, 0)


def test_the_one_long_rollout_is_the_outlier(tables):
    rows = _rows(tables, "rollout", role="all")
    assert [row["rollout"] for row in rows if row["is_outlier"]] == [str(LONG)]
    assert [row["trend"] for row in rows] == [None, 1, 1, 1, 1900 / 900, 1]


def test_the_ledger_of_a_sync(tables):
    rows = _rows(tables, "sync")
    assert [row["sync"] for row in rows] == list(range(ROLLOUTS))
    row = rows[0]
    assert (row["bytes"], row["tensors"], row["buckets"], row["engines"]) == (2 * BUCKET_BYTES, 6, 2, 2)
    assert (row["wall_ms"], row["source_ms"], row["transport"]) == (100, 100, "nccl")
    told = {
        name: row[f"{name}_ms"]
        for name in ("pause", "gather", "convert", "ready", "lock_wait", "send", "ack")
    }
    assert told == {
        "pause": 4,
        "gather": 10,
        "convert": 6,
        "ready": 24,
        "lock_wait": 4,
        "send": 40,
        "ack": 20,
    }
    assert (row["receive_ms"], row["load_ms"]) == (40, 16)
    # 4 ms of pause and twice 44 ms; the ready phase holds gather and convert, which are not counted twice.
    assert (row["named_ms"], row["remainder_ms"], row["named_part"]) == (92, 8, 0.92)
    assert (row["longest_pole"], row["longest_pole_ms"], row["other_ms"]) == ("send", 40, 0)


def test_phases_of_one_s_own_and_the_driver_s_part_stand_in_the_ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    actor = ProcessFile("disk", pid=10, role="actor", rank=0)
    driver = ProcessFile("disk", pid=1, role="driver")
    key = {"sync": 4, "source": actor.source, "transport": "disk", "weight_version": "5", "rollout": 3}
    whole = actor.phase("weight_sync", 0, 100 * MS, **key)
    for name, start, end in (
        ("mine", 10, 40),  # of which 5 ms are in a phase that has a column
        ("shard_write", 35, 60),
        ("mine", 50, 55),  # all of it in one
        ("tidied", 90, 95),
    ):
        actor.phase(name, start * MS, end * MS, parent=whole, **key)
    goes_on = driver.phase("weight_sync", 120 * MS, 200 * MS, **key)
    driver.phase("engine_wait", 125 * MS, 195 * MS, parent=goes_on, **key)
    for process in (actor, driver):
        process.write(tmp_path)
    with RunTables(tmp_path / "disk") as tables:
        (row,) = tables.view("sync").records()
    assert (row["wall_ms"], row["source_ms"]) == (200, 100)
    assert (row["named_ms"], row["remainder_ms"], row["other_ms"]) == (55, 45, 30)
    assert (row["shard_write_ms"], row["engine_wait_ms"]) == (25, 70)
    assert (row["longest_pole"], row["longest_pole_ms"]) == ("engine_wait", 70)


def test_rates_and_the_lower_bound(tables):
    row = _rows(tables, "sync")[0]
    assert (row["send_gb_s"], row["receive_gb_s"]) == (2.5, 2.5)
    assert row["load_gb_s"] == 2 * BUCKET_BYTES / 16e6
    assert (row["bound_link_gb_s"], row["bound_ms"], row["bound_ratio"]) == (2.5, 40, 2.5)
    row = tables.view("sync", link_gb_s=5).records()[0]
    assert (row["bound_basis"], row["bound_ms"], row["bound_ratio"]) == ("configured", 20, 5)


def test_what_runs_under_a_sync_hides_it(tables):
    hidden = [(row["hidden_ms"], row["exposed_ms"]) for row in _rows(tables, "sync")]
    assert hidden == [(0, 100), (60, 40)] * (ROLLOUTS // 2)


def test_buckets(tables):
    rows = _rows(tables, "bucket", sync=2)
    assert [(row["bucket"], row["start_ms"], row["bytes"], row["tensors"]) for row in rows] == [
        (0, 4, BUCKET_BYTES, 3),
        (1, 49, BUCKET_BYTES, 3),
    ]
    # From the other host: to the millisecond, once brought onto one clock.
    assert {row["wall_ms"] for row in rows} == {44}
    assert {(row["send_ms"], row["receive_ms"], row["load_ms"]) for row in rows} == {(20, 20, 8)}
    assert {row["longest_pole"] for row in rows} == {"send"}


def test_stragglers_are_scored_against_peers_and_against_their_past(tables):
    rows = {row["rank"]: row for row in _rows(tables, "ranks", role="actor", phase="backward")}
    for rank, row in rows.items():
        assert row["total_ms"] == sum(backward_ms(rank, r) for r in range(ROLLOUTS))
        assert (row["count"], row["peers"], row["peer_median_ms"]) == (ROLLOUTS, RANKS, 100)
    assert {rank: row["peer_score"] for rank, row in rows.items()} == {0: 1, 1: 1, STRAGGLER: 0.5, TIRED: 1}
    assert {rank: row["history_score"] for rank, row in rows.items()} == {
        0: 1,
        1: 1,
        STRAGGLER: 1,
        TIRED: 0.25,
    }
    assert rows[STRAGGLER]["skew"] == 2


def test_engines_take_rollout_and_sync_from_the_weight_version(tables):
    answer = tables.sql("SELECT DISTINCT rollout, sync FROM phases WHERE role = 'engine' ORDER BY 1").rows
    assert answer == [(r, r) for r in range(ROLLOUTS)]


def test_rollouts_are_chosen_as_merge_does(tables):
    assert tables.choose("latest") == [str(ROLLOUTS - 1)]
    assert tables.choose("1:3") == ["1", "2"]
    with pytest.raises(NoDataError, match="rollout 99"):
        tables.choose("99")
    with pytest.raises(MergeUsageError):
        tables.choose("3:1")
    assert {row["rollout"] for row in tables.view("rollout", ["2"]).records()} == {"2"}
    with pytest.raises(ValueError, match="no view"):
        tables.view("other")


def test_every_row_has_its_columns(tables):
    for view in VIEWS:
        table = tables.view(view)
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_a_phase_that_is_still_open_lasts_until_the_last_sign_of_life(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    process = ProcessFile("hung", pid=3, role="actor", rank=0)
    open_id = process.open("train_step", 1_000, 2_000, rollout=0)
    process.clock(9_000)
    process.write(tmp_path)
    with RunTables(tmp_path / "hung") as tables:
        assert tables.sql("SELECT id, dur_ns, is_open FROM phases").rows == [(open_id, 8_000, True)]
