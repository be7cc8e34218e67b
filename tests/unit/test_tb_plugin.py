"""The back end of the TensorBoard tab: right numbers, one merge for all, nothing written among the runs."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tab_requests import ROLLOUT, RUN, make_get, merge

from slime_profiler_plugin.testing import write_synthetic_run
from slime_tb_plugin._cache import Cache
from slime_tb_plugin._spans import length, partition, union

MS = 1_000_000


def test_runs_attempts_and_rollouts_are_listed(get, runs):
    told = get("/runs").json
    assert told["log_folder"] == str(runs)
    assert [(r["key"], r["run_id"], r["attempts"]) for r in told["runs"]] == [("synthetic", "synthetic", [0])]
    assert get("/attempts", {"run": "synthetic"}).json["attempts"] == [
        {"attempt": 0, "rollouts": ["initial", 0, 1], "processes": 5}
    ]
    assert get("/rollouts", RUN).json["rollouts"] == ["initial", 0, 1]


def test_the_overview_adds_up(get):
    told = get("/overview", RUN).json
    one = next(entry for entry in told["rollouts"] if entry["rollout"] == 1)
    assert one["wall_ns"] == 900 * MS
    assert one["parts_ns"]["generate"] == one["totals_ns"]["generate"] == 390 * MS
    assert one["parts_ns"]["train"] == 248 * MS  # two steps of 125 ms, 1 ms less each
    assert one["parts_ns"]["sync"] == 200 * MS
    for entry in told["rollouts"]:
        assert sum(entry["parts_ns"].values()) == entry["wall_ns"]
    assert set(one["parts_ns"]) == set(told["parts"])


def test_ranks_have_their_phases(get):
    told = get("/ranks", ROLLOUT).json
    names = [column["name"] for column in told["columns"]]
    assert {"actor 0", "actor 1", "engine 0", "engine 1"} <= set(names)
    step = next(row for row in told["rows"] if row["phase"] == "train_step")
    at = names.index("actor 1")
    assert (step["total_ns"][at], step["count"][at], step["ratio"][at]) == (248 * MS, 2, 1.0)
    assert step["total_ns"][names.index("engine 0")] is None


def test_the_ledger_has_every_bucket(get):
    (entry,) = get("/sync", ROLLOUT).json["syncs"]
    assert (entry["bytes"], entry["buckets"], entry["tensors"]) == (3 * 4096, 3, 6)
    assert (entry["transport"], entry["weight_version"], entry["wall_ns"]) == ("nccl", "2", 200 * MS)
    assert entry["send_ns"] == 30 * MS
    assert entry["gb_per_s"] == pytest.approx(3 * 4096 / (30 * MS), abs=1e-6)
    assert (entry["exposed_ns"], entry["hidden_ns"]) == (200 * MS, 0)
    assert entry["pieces_ns"] == {"bucket_send": 30 * MS, "barrier": 9 * MS}
    assert entry["remainder_ns"] == 161 * MS
    assert sum(s["phase"] == "engine_receive" for s in entry["slices"]) == 6
    everything = get("/sync", RUN).json["syncs"]
    assert [each["rollout"] for each in everything] == ["initial", 0, 1]
    assert not any(each["slices"] for each in everything)


def test_health_tells_who_is_missing_and_what_is_damaged(get, runs):
    told = get("/health", {"run": "synthetic"}).json
    assert len(told["processes"]) == 5
    assert (told["missing"], told["damage"]) == ([], [])
    records = sorted((runs / "synthetic" / "records").rglob("*.jsonl"))
    records[1].unlink()
    with records[2].open("ab") as stream:
        stream.write(b'{"kind":"phase","na')
    told = get("/health", {"run": "synthetic"}).json
    assert told["missing"]
    assert told["damage"]


def test_a_run_that_grows_has_a_new_version_and_new_rollouts(get, runs):
    before = get("/runs").json["runs"][0]["version"]
    assert get("/rollouts", RUN).json["rollouts"] == ["initial", 0, 1]
    write_synthetic_run(runs, trainers=2, engines=2, buckets=3, rollouts=4)
    assert get("/runs").json["runs"][0]["version"] != before
    assert get("/rollouts", RUN).json["rollouts"] == ["initial", 0, 1, 2, 3]
    assert len(get("/overview", RUN).json["rollouts"]) == 5


def test_a_rollout_is_merged_into_the_cache_and_never_the_log_folder(get, runs, tmp_path):
    before = {(p, p.stat().st_mtime_ns) for p in runs.rglob("*")}
    assert get("/merge/progress", ROLLOUT).json["state"] == "absent"
    assert get("/merge/download", ROLLOUT).status == 404
    told = merge(get, ROLLOUT)
    assert (told["state"], told["too_large"], told["exact"]) == ("done", False, True)
    answer = get("/merge/download", ROLLOUT)
    assert answer.headers["Content-Type"] == "application/gzip"
    text = gzip.decompress(answer.body)
    assert len(text) == told["bytes"]
    assert json.loads(text)["traceEvents"]
    assert {(p, p.stat().st_mtime_ns) for p in runs.rglob("*")} == before
    assert len(list((tmp_path / "cache").rglob("*.json.gz"))) == 1


def test_many_who_ask_at_once_have_one_merge(get, monkeypatch):
    from slime_tb_plugin import _merges

    calls = []
    whole = _merges.merge_run

    def count(*args: Any, **named: Any) -> Any:
        calls.append(args)
        return whole(*args, **named)

    monkeypatch.setattr(_merges, "merge_run", count)
    threads = [threading.Thread(target=merge, args=(get, ROLLOUT)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_a_large_trace_is_said_to_be(runs, monkeypatch):
    monkeypatch.setattr("slime_tb_plugin._merges.BROWSER_BYTES", 1000)
    get = make_get(runs)
    assert merge(get, ROLLOUT)["too_large"]
    assert merge(get, {**ROLLOUT, "cut": 1})["state"] == "done"


def test_a_merge_that_fails_says_why(get, monkeypatch):
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("slime_tb_plugin._merges.merge_run", fail)
    told = merge(get, ROLLOUT)
    assert told["state"] == "failed"
    assert "No space left" in told["error"]


def test_an_empty_or_absent_log_folder_is_no_error(tmp_path):
    for folder in (tmp_path, tmp_path / "later"):
        told = make_get(folder)("/runs").json
        assert (told["runs"], told["problems"]) == ([], [])


def test_the_log_folder_may_be_a_run(runs):
    get = make_get(runs / "synthetic")
    assert [run["key"] for run in get("/runs").json["runs"]] == ["."]
    assert get("/rollouts", {"run": ".", "attempt": 0}).json["rollouts"] == ["initial", 0, 1]


def test_names_that_are_markup_are_told_as_they_are(tmp_path):
    write_synthetic_run(tmp_path, run_id="<img src=x onerror=alert(1)>")
    (run,) = make_get(tmp_path)("/runs").json["runs"]
    assert run["run_id"] == "<img src=x onerror=alert(1)>"
    answer = make_get(tmp_path)("/runs")
    assert answer.headers["Content-Type"] == "application/json"


def test_stretches_of_time():
    assert union([(5, 9), (0, 2), (1, 3), (3, 3)]) == [(0, 3), (5, 9)]
    assert length([(0, 10), (2, 3)]) == 10
    assert partition({"train": [(0, 5), (4, 6)], "sync": []}, 2, 10) == {
        "train": 4,
        "sync": 0,
        "overlap": 0,
        "idle": 4,
    }


def test_a_cache_makes_each_value_once_and_forgets_the_oldest():
    cache: Cache[int] = Cache(2)
    made: list[int] = []

    def make(value: int) -> Callable[[], int]:
        return lambda: made.append(value) or value

    for value in (1, 2, 1, 3, 1, 2):
        assert cache.get(value, make(value)) == value
    assert made == [1, 2, 3, 2]
    with pytest.raises(ZeroDivisionError):
        cache.get(9, lambda: 1 // 0)
    assert cache.get(9, make(9)) == 9


def test_without_permission_a_run_says_so(runs, get):
    records = runs / "synthetic" / "records"
    records.chmod(0)
    try:
        if os.access(records, os.R_OK):
            pytest.skip("this user may read everything")
        assert get("/overview", RUN).status in (404, 422)
    finally:
        records.chmod(0o755)
