"""Every column of every view and table, on a made-up run with all there can be in it."""

from __future__ import annotations

import json

import pytest
from planted_run import MS

pytest.importorskip("duckdb")

from slime_profiler_plugin import schema
from slime_profiler_plugin.analyze import TABLES, VIEW_COLUMNS, RunTables
from slime_profiler_plugin.testing import ProcessFile

RANKS = {"tp": 1, "pp": 2, "dp": 3, "cp": 4, "ep": 5}
EPOCH_NS = 1_795_000_000 * 10**9
#: When the sync begins, ms.
SYNC = 1_000
SENT, WRITTEN, PUBLISHED = 8_000_000, 5_000_000, 6_000_000
VERSION = "9"
KEY = {"sync": 7, "transport": "nccl", "weight_version": VERSION}


def add_sync(actor: ProcessFile, engine: ProcessFile, driver: ProcessFile) -> int:
    """Each piece lasts another number of ms; the id of `bucket_send` is returned."""
    named = {"rollout": 0, "source": actor.source, **KEY}
    whole = actor.phase("weight_sync", SYNC * MS, (SYNC + 200) * MS, **named)
    driver.phase("generate", SYNC * MS, (SYNC + 50) * MS, rollout=0)

    def add(name, start, end, **fields):
        begin = (SYNC + start) * MS
        return actor.phase(name, begin, (SYNC + end) * MS, parent=whole, **named, **fields)

    about = {"bucket": 0, "bytes": SENT, "tensors": 3}
    add("connect_engines", 0, 1)
    add("pause_generation", 1, 3)
    add("flush_cache", 3, 6)
    add("bucket_ready", 10, 30, **about)
    add("tp_gather", 10, 14, bucket=0)
    add("weight_convert", 14, 19, bucket=0)
    add("bucket_lock_wait", 30, 36, **about)
    add("bucket_lock_release", 36, 37, **about)
    sent = add("bucket_send", 40, 48, **about)
    add("bucket_ack", 50, 59, **about)
    add("shard_write", 60, 70, bucket=0, bytes=WRITTEN)
    add("delta_encode", 70, 81, bucket=0)
    add("delta_publish", 81, 93, bucket=0, bytes=PUBLISHED)
    add("engine_wait", 100, 113)
    add("barrier", 113, 127)
    add("continue_generation", 127, 142)
    add("sync_complete", 142, 158)
    add("mine", 160, 177)
    told = {"weight_version": VERSION, "bucket": 0, "tensors": 3}
    for name, start, end, size in (
        ("engine_receive", 40, 60, SENT),
        ("engine_pull", 60, 85, PUBLISHED),
        ("engine_load", 85, 125, SENT),
    ):
        engine.phase(name, (SYNC + start) * MS, (SYNC + end) * MS, bytes=size, **told)
    return sent


@pytest.fixture
def written(tmp_path, monkeypatch):
    """(tables, the first trainer, its file): a rollout from 900 to 1310 ms."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    driver = ProcessFile("whole", pid=1, role="driver")
    actor = ProcessFile("whole", pid=10, start_ns=5, role="actor", rank=0, ranks=RANKS, world_size=2)
    other = ProcessFile("whole", pid=11, start_ns=6, role="actor", rank=1, ranks=RANKS)
    engine = ProcessFile("whole", pid=20, start_ns=7, role="engine", engine={"index": 4})
    actor.phase("train_step", 900 * MS, 1000 * MS, rollout=0, tid=77, task=2, step=6, error="OOM", engine=4)
    other.phase("train_step", 900 * MS, 930 * MS, rollout=0)
    sent = add_sync(actor, engine, driver)
    driver.phase("eval", 1260 * MS, 1300 * MS, rollout=0)
    actor.phase("save_model", 1300 * MS, 1310 * MS, rollout=0, attrs={"where": "disk"})
    bracket = {"device_type": "cuda", "device_index": 0, "stream": 7, "uncertainty_ns": 900}
    actor.lines += [
        schema.Device(id=sent, start_ns=(SYNC + 41) * MS, dur_ns=3 * MS, **bracket),
        schema.Mark(name="here", start_ns=1_305 * MS, tid=10, rollout=0, attrs={"why": 1}),
        schema.Drop(at_ns=1_306 * MS, what="mark", reason="full", count=4),
    ]
    actor.end(1_320 * MS)
    for process in (driver, other, engine):
        process.write(tmp_path)
    path = actor.write(tmp_path)
    path.write_bytes(path.read_bytes() + b"{bad\n")
    with RunTables(tmp_path / "whole") as tables:
        yield tables, actor, path


def check(table, columns, wanted, **which):
    """The one row of `table` with those values is `wanted`, column by column."""
    (row,) = [r for r in table.records() if all(r[name] == value for name, value in which.items())]
    assert list(row) == [column.name for column in columns]
    wanted = {**dict.fromkeys(row), **which, **wanted}
    assert {n: v for n, v in row.items() if v != wanted[n] and v != pytest.approx(wanted[n])} == {}


def test_every_column_of_the_views(written):
    tables, actor, _ = written
    key = {"attempt": 0, "rollout": "0", "sync": 7, "source": actor.source, "transport": "nccl"}
    shares = {"generate_ms": 50, "train_ms": 100, "sync_ms": 200, "eval_ms": 40, "other_ms": 10}
    shares |= {"idle_ms": 60, "overlap_ms": 50, "is_outlier": False, "processes": 4, "attempt": 0}
    check(
        tables.view("rollout"),
        VIEW_COLUMNS["rollout"],
        {"wall_ms": 410, **shares},
        rollout="0",
        role="all",
    )
    pieces = {"gather_ms": 4, "convert_ms": 5, "ready_ms": 20, "lock_wait_ms": 7, "send_ms": 8, "ack_ms": 9}
    pieces |= {"shard_write_ms": 10, "delta_encode_ms": 11, "delta_publish_ms": 12}
    pieces |= {"receive_ms": 20, "pull_ms": 25, "load_ms": 40}
    pieces |= {"bytes": SENT, "tensors": 3, "engines": 1}
    rates = {"send_gb_s": 1, "write_gb_s": 0.5, "publish_gb_s": 0.5}
    rates |= {"receive_gb_s": 0.4, "pull_gb_s": 0.24, "load_gb_s": 0.2}
    whole = {"connect_ms": 1, "pause_ms": 2, "flush_ms": 3, "engine_wait_ms": 13, "barrier_ms": 14}
    whole |= {"continue_ms": 15, "complete_ms": 16, "other_ms": 17, "weight_version": VERSION, "buckets": 1}
    whole |= {"wall_ms": 200, "source_ms": 200, "named_ms": 158, "remainder_ms": 42, "named_part": 0.79}
    whole |= {"hidden_ms": 50, "exposed_ms": 150}
    whole |= {"bound_ms": 40, "bound_link_gb_s": 0.2, "bound_basis": "measured: best engine_load"}
    whole |= {"bound_ratio": 5, "longest_pole": "ready", "longest_pole_ms": 20}
    check(tables.view("sync"), VIEW_COLUMNS["sync"], {**key, **pieces, **rates, **whole})
    bucket = {"bucket": 0, "start_ms": 10, "wall_ms": 115, "longest_pole": "load", "longest_pole_ms": 40}
    check(tables.view("bucket"), VIEW_COLUMNS["bucket"], {**key, **pieces, **rates, **bucket})
    rank = {**RANKS, "attempt": 0, "role": "actor", "host": "host0", "rollouts": 1, "count": 1}
    times = {"total_ms": 8, "median_ms": 8, "longest_ms": 8, "device_ms": 3}
    peers = {"rank": 0, "process": 2, "peers": 1, "peer_median_ms": 8, "skew": 1}
    check(tables.view("ranks"), VIEW_COLUMNS["ranks"], {**rank, **times, **peers}, phase="bucket_send")
    times = {"total_ms": 100, "median_ms": 100, "longest_ms": 100}
    peers = {"process": 2, "peers": 2, "peer_median_ms": 65, "skew": 100 / 65, "peer_score": 0.65}
    check(tables.view("ranks"), VIEW_COLUMNS["ranks"], {**rank, **times, **peers}, phase="train_step", rank=0)


def test_every_column_of_the_tables(written):
    tables, actor, path = written

    def check_row(name, wanted, where="true"):
        (row,) = tables.sql(f"SELECT * FROM {name} WHERE {where}").records()
        assert list(row) == [column.name for column in TABLES[name]]
        if row.get("attrs") is not None:
            row["attrs"] = json.loads(row["attrs"])
        assert row == {**dict.fromkeys(row), **wanted}

    process = {
        **RANKS,
        "process": 2,
        "attempt": 0,
        "role": "actor",
        "rank": 0,
        "world_size": 2,
        "ended": True,
    }
    process |= {"host": "host0", "pid": 10, "incarnation": actor.process.incarnation, "source": actor.source}
    process |= {"start_unix_ns": EPOCH_NS + 5, "start_ns": 5, "first_ns": 5, "last_ns": 1_320 * MS}
    process |= {"clock_domain": "boot0", "clock_basis": "same clock", "clock_offset_ns": 0}
    check_row("processes", process, "pid = 10")
    (engine,) = tables.sql("SELECT engine, ended FROM processes WHERE role = 'engine'").rows
    assert engine == (4, False)

    common = {"process": 2, "attempt": 0, "role": "actor", "rank": 0, "rollout": 0, "rollout_name": "0"}
    step = {"id": 1, "name": "train_step", "activity": "train", "is_outer": True, "is_open": False, "step": 6}
    step |= {"start_ns": 900 * MS, "end_ns": 1000 * MS, "dur_ns": 100 * MS, "thread": 77, "task": 2}
    check_row("phases", {**common, **step, "engine": "4", "error": "OOM"}, "name = 'train_step' AND rank = 0")
    send = {"id": 11, "parent": 2, "name": "bucket_send", "activity": "sync", "is_outer": False}
    send |= {"start_ns": 1040 * MS, "end_ns": 1048 * MS, "dur_ns": 8 * MS, "is_open": False, "thread": 10}
    send |= {"device_ns": 3 * MS, "device_uncertainty_ns": 900, "bytes": SENT, "tensors": 3, "bucket": 0}
    check_row("phases", {**common, **send, "source": actor.source, **KEY}, "name = 'bucket_send'")
    save = {"name": "save_model", "activity": "other", "is_outer": True, "is_open": False, "thread": 10}
    save |= {"start_ns": 1300 * MS, "end_ns": 1310 * MS, "dur_ns": 10 * MS, "attrs": {"where": "disk"}}
    check_row("phases", {**common, **save, "id": 21}, "name = 'save_model'")

    mark = {"process": 2, "name": "here", "at_ns": 1_305 * MS, "rollout_name": "0", "attrs": {"why": 1}}
    check_row("marks", mark)
    check_row("drops", {"process": 2, "what": "mark", "reason": "full", "count": 4})
    (damage,) = tables.sql("SELECT * FROM damage").records()
    assert list(damage) == [column.name for column in TABLES["damage"]]
    assert damage.pop("reason").startswith("not a JSON object")
    lines = path.read_bytes().count(b"\n")
    assert damage == {"path": str(path), "kind": "corrupt", "line": lines, "lost": 1}
    sums = {"process": 2, "rollout_name": "0", "rollout": 0, "name": "bucket_send", "count": 1}
    sums |= {"total_ns": 8 * MS, "longest_ns": 8 * MS, "device_ns": 3 * MS}
    check_row("rank_phases", sums, "name = 'bucket_send'")


def test_scores_of_outliers_and_of_a_rank_s_past(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    process = ProcessFile("turns", pid=10, role="actor", rank=0)
    walls = [100, 110, 120, 130, 400]
    for rollout, wall in enumerate(walls):
        process.phase("train_step", rollout * 1000 * MS, (rollout * 1000 + wall) * MS, rollout=rollout)
    process.write(tmp_path)
    with RunTables(tmp_path / "turns") as tables:
        rows = [row for row in tables.view("rollout").records() if row["role"] == "all"]
        (rank,) = tables.view("ranks").records()
    # The median is 120, and the median distance from it 10.
    assert [row["outlier_score"] for row in rows] == pytest.approx([abs(w - 120) / 14.826 for w in walls])
    assert [row["is_outlier"] for row in rows] == [False] * 4 + [True]
    trends = [110 / 100, 120 / 105, 130 / 110, 400 / 115]
    assert [row["trend"] for row in rows] == [None, *map(pytest.approx, trends)]
    assert rank["history_score"] == pytest.approx(115 / 400)
    assert (rank["median_ms"], rank["longest_ms"], rank["rollouts"]) == (120, 400, 5)
