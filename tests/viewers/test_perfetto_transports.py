"""Weights over ipc and over disks, in Perfetto's own trace_processor: the right numbers by SQL.

(nccl is in `test_perfetto.py`.)
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from slime_profiler_plugin.layout import RunPaths, parse_rollout_name

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
ROLLOUTS = ["initial", 0, 1]
TRANSPORTS = ["ipc", "disk", "disk_delta"]
_ARGS = (
    *("run_id", "attempt", "rollout", "sync", "source", "weight_version", "transport", "bucket", "bytes"),
    *("tensors", "engine", "phase_id", "attrs.baseline", "attrs.decoded_bytes"),
)
SLICES = f"""
select s.id, s.name, s.ts, s.dur, process.name as process,
  {", ".join(f"extract_arg(s.arg_set_id, 'args.{name}') as '{name}'" for name in _ARGS)}
from slice s join thread_track t on t.id = s.track_id join thread using (utid) join process using (upid)
order by s.ts
"""
ARROWS = "select slice_out, slice_in from flow"
_OWNERS = {
    "ipc": {"bucket_send": "actor", "engine_receive": "engine", "engine_load": "engine"},
    "disk": {"shard_write": "actor", "engine_load": "engine"},
    "disk_delta": {
        "delta_encode": "actor",
        "delta_publish": "actor",
        "engine_pull": "engine",
        "engine_load": "engine",
    },
}
_EVERY_SYNC = ("pause_generation", "flush_cache", "continue_generation", "sync_complete")


class Answers(NamedTuple):
    """What trace_processor says about one merged file; a slice also has ``role`` and ``rank``."""

    rollout: int | str
    slices: list[dict]
    arrows: list[tuple[dict, dict]]
    errors: list[dict]
    conservation: dict

    @property
    def sync(self):
        return 0 if self.rollout == "initial" else self.rollout + 1

    def named(self, name):
        return [row for row in self.slices if row["name"] == name]


def owner(process):
    found = re.match(r"(actor|engine)(?: rank)? (\d+) ·", process or "")
    return {"role": found and found[1], "rank": found and int(found[2])}


@pytest.fixture(scope="module")
def asked(demos, perfetto):
    """By transport, each merged file asked once."""
    answers = {}
    for transport in TRANSPORTS:
        answers[transport] = []
        merged = RunPaths.at(Path(demos[transport]["run_folder"])).merged
        for path in sorted(merged.glob("*.trace.json.gz")):
            rows, flows, errors = perfetto.query(path, SLICES, ARROWS)
            by_id = {row["id"]: row | owner(row["process"]) for row in rows}
            arrows = [(by_id[flow["slice_out"]], by_id[flow["slice_in"]]) for flow in flows]
            rollout = parse_rollout_name(path.name.removesuffix(".trace.json.gz"))
            told = json.loads(gzip.decompress(path.read_bytes()))["slime_profiler_conservation"]
            answers[transport].append(Answers(rollout, list(by_id.values()), arrows, errors, told))
    return answers


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    return request.param


@pytest.fixture
def each(asked, transport):
    return asked[transport]


def arrows_of(answers):
    """How often an arrow leads from (name, rank) to (name, rank)."""
    return Counter((a["name"], a["rank"], b["name"], b["rank"]) for a, b in answers.arrows)


def test_every_rollout_has_a_file_that_loads_without_an_error_and_loses_nothing(each, demos, transport):
    assert sorted(map(str, (a.rollout for a in each))) == sorted(map(str, ROLLOUTS))
    assert [a.errors for a in each] == [[]] * 3
    assert demos[transport]["exit_code"] == 0
    for a in each:
        total = a.conservation["total"]
        accounted = total["written"] + total["other_rollouts"] + total["described"]
        assert total["read"] == accounted + sum(total["dropped"].values())
        assert a.conservation["arrows"] == len(a.arrows)
        assert a.conservation["arrows_not_drawn"] == {}


def test_each_phase_of_a_sync_has_its_ids_and_stands_where_it_was_recorded(each, demos, transport):
    run_id = Path(demos[transport]["run_folder"]).name
    for a in each:
        for name, role in _OWNERS[transport].items():
            rows = a.named(name)
            assert {row["role"] for row in rows} == {role}, name
            for row in rows:
                assert (row["run_id"], row["attempt"], row["rollout"]) == (run_id, 0, a.rollout)
                assert (row["sync"], row["weight_version"]) == (a.sync, str(a.sync + 1))
                assert row["transport"] == transport
                assert row["bytes"] > 0
                served = row["rank"] if transport == "ipc" else 0
                assert re.fullmatch(rf"actor-{served}@\d+-\d+", row["source"])
        syncs = a.named("weight_sync")
        assert Counter(row["role"] for row in syncs) == (
            {"actor": 2, None: 1} if transport == "disk" else {"actor": 2}
        )
        assert {(row["sync"], row["transport"], row["rollout"]) for row in syncs} == {
            (a.sync, transport, a.rollout)
        }
        for name in _EVERY_SYNC:
            assert [row["role"] for row in a.named(name)] == [None if transport == "disk" else "actor"]
        assert len({row["source"] for row in syncs}) == (2 if transport == "ipc" else 1)


def test_ipc_each_rank_hands_the_model_to_the_engine_beside_it_and_to_no_other(asked, demos):
    size = demos["ipc"]["model_bytes"]
    for a in asked["ipc"]:
        buckets = len({row["bucket"] for row in a.named("bucket_send")})
        assert buckets > 2
        assert arrows_of(a) == {("bucket_send", r, "engine_receive", r): buckets for r in (0, 1)}
        for start, end in a.arrows:
            for field in ("sync", "source", "bucket", "bytes", "tensors", "engine"):
                assert start[field] == end[field]
        for name in ("bucket_send", "bucket_ack", "engine_receive", "engine_load"):
            moved = Counter()
            for row in a.named(name):
                moved[row["engine"]] += row["bytes"]
            assert moved == {0: size, 1: size}, name
        assert a.named("bucket_lock_wait") == []


def test_disk_every_file_is_loaded_once_by_every_engine(asked, demos):
    told = demos["disk"]
    for a in asked["disk"]:
        writes, loads = a.named("shard_write"), a.named("engine_load")
        files = told["syncs"][a.sync]
        assert sorted(row["bucket"] for row in writes) == list(range(files["files"]))
        assert {row["rank"] for row in writes} == {0, 1}
        assert sum(row["bytes"] for row in writes) == files["file_bytes"] >= told["model_bytes"]
        assert sum(row["tensors"] for row in writes) == told["tensors"]
        assert sorted(row["rank"] for row in loads) == [0, 1]
        assert {(row["bytes"], row["tensors"]) for row in loads} == {(told["model_bytes"], told["tensors"])}
        assert arrows_of(a) == {
            ("shard_write", writer, "engine_load", engine): sum(row["rank"] == writer for row in writes)
            for writer in (0, 1)
            for engine in (0, 1)
        }
        assert len({(start["id"], end["id"]) for start, end in a.arrows}) == 2 * len(writes)
        written = max(row["ts"] + row["dur"] for row in writes)
        assert min(row["ts"] for row in loads) > written


def test_disk_delta_says_wire_bytes_and_each_engine_decodes_the_whole_model(asked, demos):
    told = demos["disk_delta"]
    for a in asked["disk_delta"]:
        published, pulls, loads = map(a.named, ("delta_publish", "engine_pull", "engine_load"))
        wire = sum(row["bytes"] for row in published)
        assert wire == told["syncs"][a.sync]["file_bytes"] < told["model_bytes"]
        assert sum(row["attrs.decoded_bytes"] for row in published) == told["model_bytes"]
        assert sum(row["bytes"] for row in a.named("delta_encode")) == told["model_bytes"]
        assert sum(row["tensors"] for row in published) == told["tensors"]
        assert sorted((row["rank"], row["bytes"]) for row in pulls) == [(0, wire), (1, wire)]
        assert sorted((row["rank"], row["bytes"], row["tensors"]) for row in loads) == [
            (engine, told["model_bytes"], told["tensors"]) for engine in (0, 1)
        ]
        assert arrows_of(a) == {
            ("delta_publish", writer, "engine_pull", engine): sum(row["rank"] == writer for row in published)
            for writer in (0, 1)
            for engine in (0, 1)
        }
        baselines = {bool(row["attrs.baseline"]) for row in (*published, *pulls, *loads)}
        assert baselines == {a.sync == 0}
    assert [sync["baselines"] for sync in told["syncs"]] == [[True], [False], [False]]


def test_nothing_is_left_running_or_lying_about(demos):
    assert demos["left_running"] == 0
    assert demos["left_behind"] == []
    assert demos["left_shared"] == []


def test_each_transport_is_told_and_proved(demos):
    told = [line for line in demos["lines"] if "proved" in line]
    assert len(told) == 9
    assert all("28 tensors and 128 tokens equal in 4 models" in line for line in told)
    words = {"ipc": "in 7 buckets to each of 2 engines", "disk": "into 7 files of", "disk_delta": "whole in"}
    assert [
        words[t] in line for t, line in zip(TRANSPORTS, (told[0], told[3], told[6]), strict=True)
    ] == 3 * [True]
    assert "as differences in 7 files" in told[7]
