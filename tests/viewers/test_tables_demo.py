"""The tables of a recorded run say what its merged files say in Perfetto, and what the program knows."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from slime_profiler_plugin.layout import RunPaths, rollout_name

pytest.importorskip("duckdb")

from slime_profiler_plugin.analyze import RunTables

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
SLICES = """
select s.name, sum(s.dur) as ns, count(*) as n from slice s
where extract_arg(s.arg_set_id, 'args.phase_id') is not null and s.category = 'phase'
  and s.dur >= 0 group by s.name
"""


@pytest.fixture(params=["nccl", "ipc", "disk", "disk_delta"])
def recorded(request, tmp_path, monkeypatch):
    """(tables, folder, bytes of the model, transport) of a demo over each transport."""
    transport = request.param
    told = request.getfixturevalue("demo" if transport == "nccl" else "demos")
    told = told if transport == "nccl" else told[transport]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = Path(told["run_folder"])
    with RunTables(folder) as tables:
        yield tables, folder, told["model_bytes"], transport


def test_sums_of_phases_equal_those_of_the_merged_files(recorded, perfetto):
    tables, folder, _, _ = recorded
    for rollout in tables.rollouts():
        path = RunPaths.at(folder).merged_file(
            "initial" if rollout == "initial" else rollout_name(int(rollout))
        )
        (rows,) = perfetto.query(path, SLICES)[:1]
        seen = {row["name"]: (row["ns"], row["n"]) for row in rows}
        answer = tables.sql(
            "SELECT name, CAST(sum(total_ns) AS BIGINT), CAST(sum(count) AS BIGINT) FROM rank_phases "
            f"WHERE rollout_name = '{rollout}' GROUP BY name"
        )
        assert {name: (ns, n) for name, ns, n in answer.rows} == seen


def test_bytes_are_those_of_the_model(recorded):
    tables, _, model_bytes, transport = recorded
    rows = tables.view("sync").records()
    assert rows
    for row in rows:
        if transport == "disk":  # the files have a header each
            assert model_bytes < row["bytes"] < model_bytes * 1.01
        else:
            assert row["bytes"] == model_bytes
        assert row["transport"] == transport
        assert row["named_ms"] + row["remainder_ms"] == pytest.approx(row["source_ms"])
    buckets = tables.view("bucket").records()
    for row in rows:
        own = [b["bytes"] for b in buckets if (b["sync"], b["source"]) == (row["sync"], row["source"])]
        assert sum(own) == row["bytes"]


def test_named_pieces_cover_the_source_s_sync(recorded):
    tables, _, _, _ = recorded
    rows = tables.view("sync").records()
    # What has no name in the program is unnamed in every sync. The machine may stop a process between two
    # phases of one of them, which no phase could name, so the median speaks. To write a phase down takes some
    # 0.02 ms between it and the next, which is more than a part in twenty where all takes a few ms.
    allowed = [max(0.05 * row["source_ms"], 0.5) for row in rows]
    assert statistics.median(row["remainder_ms"] / most for row, most in zip(rows, allowed, strict=True)) <= 1
    for row in rows:
        assert row["named_part"] == pytest.approx(row["named_ms"] / row["source_ms"])
        assert row["other_ms"] <= row["named_ms"]
