"""The back end of the TensorBoard tab: right numbers, one merge for all, nothing written among the runs."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tab_requests import ROLLOUT, RUN, make_get, merge

pytest.importorskip("duckdb")

from slime_profiler_plugin.analyze import RunTables, tables_json
from slime_profiler_plugin.read import is_run_folder
from slime_profiler_plugin.testing import MS, write_synthetic_run
from slime_tb_plugin._cache import Cache
from slime_tb_plugin._views import order_phases


def records(table: dict[str, Any]) -> list[dict[str, Any]]:
    names = [column["name"] for column in table["columns"]]
    return [dict(zip(names, row, strict=True)) for row in table["rows"]]


def test_runs_attempts_and_rollouts_are_listed(get, runs):
    told = get("/runs").json
    assert told["log_folder"] == str(runs)
    assert [(r["key"], r["run_id"], r["attempts"]) for r in told["runs"]] == [("synthetic", "synthetic", [0])]
    assert told["runs"][0]["bytes"] == sum(f.stat().st_size for f in runs.rglob("*.jsonl"))
    attempts = get("/attempts", {"run": "synthetic"}).json
    assert attempts["version"] == told["runs"][0]["version"]
    assert attempts["attempts"] == [{"attempt": 0, "rollouts": ["initial", "0", "1"], "processes": 5}]


def test_the_views_are_those_of_the_report(get, runs):
    with RunTables(runs / "synthetic") as tables:
        wanted = json.loads(tables_json([tables.view("rollout"), tables.view("sync")]))["views"]
        of_one = json.loads(tables_json([tables.view("ranks", ["1"]), tables.view("bucket", ["1"])]))["views"]
    found = {
        "rollout": get("/overview", RUN).json["table"],
        "sync": get("/sync", RUN).json["table"],
        "ranks": get("/ranks", ROLLOUT).json["table"],
        "bucket": get("/buckets", {**ROLLOUT, "sync": 2, "source": source_of(get)}).json["table"],
    }
    for name, view in {**wanted, **of_one}.items():
        assert found[name]["columns"] == view["columns"]
        assert records(found[name]) == view["rows"]
        assert view["rows"]


def source_of(get) -> str:
    return records(get("/sync", RUN).json["table"])[0]["source"]


def test_the_overview_has_the_planted_times(get):
    rows = records(get("/overview", RUN).json["table"])
    (one,) = [row for row in rows if (row["rollout"], row["role"]) == ("1", "all")]
    assert (one["wall_ms"], one["generate_ms"], one["train_ms"], one["sync_ms"]) == (900, 390, 248, 200)
    assert {row["role"] for row in rows} == {"all", "driver", "actor", "engine"}


def test_phases_stand_behind_those_they_stand_in(get):
    found = {phase["name"]: phase["depth"] for phase in get("/ranks", ROLLOUT).json["phases"]}
    names = list(found)
    assert (found["train_step"], found["forward_backward"], found["grad_sync"]) == (0, 1, 2)
    assert names.index("train_step") < names.index("grad_sync") < names.index("weight_sync")
    assert [(p.name, p.depth) for p in order_phases(["mine", "grad_sync", "train_step"])] == [
        ("train_step", 0),
        ("grad_sync", 1),
        ("mine", 0),
    ]


def test_a_sync_has_every_bucket_at_the_sender_and_at_each_engine(get):
    told = get("/buckets", {**ROLLOUT, "sync": 2, "source": source_of(get)}).json
    assert [row["bytes"] for row in records(told["table"])] == [4096] * 3
    first, *_ = told["phases"]
    assert (first["row"], first["phase"], first["start_ns"]) == ("actor 0", "bucket_send", MS)
    assert [p["dur_ns"] for p in told["phases"] if p["phase"] == "bucket_send"] == [10 * MS] * 3
    assert sum(p["phase"] == "engine_receive" for p in told["phases"]) == 6
    assert {p["row"] for p in told["phases"]} == {"actor 0", "engine 0", "engine 1"}
    none = get("/buckets", {**ROLLOUT, "sync": 2, "source": "' OR 1=1 --"}).json
    assert (none["table"]["rows"], none["phases"]) == ([], [])


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
    before = get("/attempts", {"run": "synthetic"}).json
    write_synthetic_run(runs, trainers=2, engines=2, buckets=3, rollouts=4)
    assert get("/runs").json["runs"][0]["version"] != before["version"]
    (after,) = get("/attempts", {"run": "synthetic"}).json["attempts"]
    assert after["rollouts"] == ["initial", "0", "1", "2", "3"]
    rows = records(get("/overview", RUN).json["table"])
    assert [row["rollout"] for row in rows if row["role"] == "all"] == after["rollouts"]


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
    (attempt,) = get("/attempts", {"run": "."}).json["attempts"]
    assert attempt["rollouts"] == ["initial", "0", "1"]


def test_names_that_are_markup_are_told_as_they_are(tmp_path):
    write_synthetic_run(tmp_path, run_id="<img src=x onerror=alert(1)>")
    (run,) = make_get(tmp_path)("/runs").json["runs"]
    assert run["run_id"] == "<img src=x onerror=alert(1)>"
    answer = make_get(tmp_path)("/runs")
    assert answer.headers["Content-Type"] == "application/json"


def test_a_folder_whose_name_no_query_can_hold_hides_no_other(tmp_path):
    write_synthetic_run(tmp_path)
    write_synthetic_run(tmp_path, run_id="other")
    for name in ("two\nlines", os.fsdecode(b"no\xffutf"), "a b&c=d+%41"):
        shutil.copytree(tmp_path / "other", tmp_path / name)
    get = make_get(tmp_path)
    told = get("/runs").json
    assert {run["key"] for run in told["runs"]} == {"synthetic", "other", "a b&c=d+%41"}
    assert {each.partition(": ")[0] for each in told["problems"]} == {"two\\nlines", "no\\udcffutf"}
    for run in told["runs"]:
        assert get("/attempts", {"run": run["key"]}).status == 200


def test_names_of_files_that_are_no_utf_8_are_written_out(runs, get):
    records = runs / "synthetic" / "records"
    host = next(records.iterdir())
    odd = records / os.fsdecode(b"host\xff")
    host.rename(odd)
    path = next(odd.iterdir())
    path.write_bytes(path.read_bytes() + b"{bad\n")
    (odd / os.fsdecode(b"no\xffrecords")).write_bytes(b"")
    told = get("/health", {"run": "synthetic"}).json
    assert any("host\\udcff" in each or "host\\xff" in each for each in told["damage"])
    assert get("/attempts", {"run": "synthetic"}).status == 200


def test_a_list_of_runs_looks_at_each_of_them_once(tmp_path, monkeypatch):
    for number in range(5):
        write_synthetic_run(tmp_path, run_id=f"run{number}")
    looks: list[Path] = []

    def look(folder: Path) -> bool:
        looks.append(folder)
        return is_run_folder(folder)

    monkeypatch.setattr("slime_profiler_plugin.read.folders.is_run_folder", look)
    monkeypatch.setattr("slime_tb_plugin._log_folder.is_run_folder", look)
    get = make_get(tmp_path)
    assert len(get("/runs").json["runs"]) == 5
    assert sorted(looks) == [tmp_path, *(tmp_path / f"run{number}" for number in range(5))]
    looks.clear()
    assert get("/health", {"run": "run3"}).status == 200
    assert set(looks) <= {tmp_path, tmp_path / "run3"}


def test_a_cache_makes_each_answer_once_and_forgets_the_oldest():
    cache = Cache(20)
    made: list[bytes] = []

    def make(value: bytes) -> Callable[[], bytes]:
        return lambda: made.append(value) or value

    one, two, three = b"1" * 10, b"2" * 10, b"3" * 10
    for value in (one, two, one, three, one, two):
        assert cache.get(value, make(value)) == value
    assert made == [one, two, three, two]
    with pytest.raises(ZeroDivisionError):
        cache.get(9, lambda: bytes(1 // 0))
    assert cache.get(9, make(b"9" * 50)) == b"9" * 50


def test_without_permission_a_run_says_so(runs, get):
    records = runs / "synthetic" / "records"
    records.chmod(0)
    try:
        if os.access(records, os.R_OK):
            pytest.skip("this user may read everything")
        assert get("/overview", RUN).status in (404, 422)
    finally:
        records.chmod(0o755)
