"""What a file is, and who recorded it."""

from __future__ import annotations

import gzip
import json
import lzma
import pickle
import sqlite3

import pytest

from slime_profiler_plugin.read import Owner, TraceRefusedError, open_trace, read_header
from slime_profiler_plugin.read._owner import parse_engine_name

EVENT = {"ph": "X", "name": "op", "pid": 7, "tid": 7, "ts": 1, "dur": 1}
KINETO = {"schemaVersion": 1, "traceEvents": [EVENT]}


def write(folder, content, name="a.json"):
    path = folder / name
    text = content if isinstance(content, (bytes, str)) else json.dumps(content)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("name", "content", "form"),
    [
        ("a.json", KINETO, "kineto"),
        ("a.json", {"traceEvents": [EVENT], "otherData": {}}, "chrome"),
        ("a.json", {"traceEvents": []}, "chrome"),
        ("a.json", [EVENT], "chrome"),
        ("a.json", [{**EVENT, "pid": "10.0.0.1", "tid": "worker:0a"}], "ray"),
        ("a.json", [{**EVENT, "pid": "", "tid": "driver:0a"}], "ray"),
        ("run1-TP-0.trace.json", KINETO, "sglang"),
        (
            "a.json",
            {"slime_profiler": {"run_id": "r", "role": "actor", "rank": 2}, "traceEvents": []},
            "ours",
        ),
        ("merged-x.trace.json", KINETO, "kineto"),
    ],
)
def test_recognised_by_its_content(tmp_path, name, content, form):
    assert open_trace(write(tmp_path, content, name)).format == form


def test_an_engine_is_recognised_by_its_process_name(tmp_path):
    named = {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "sglang::scheduler_TP1"}}
    trace = open_trace(write(tmp_path, {"distributedInfo": {"rank": 1}, "traceEvents": [named, EVENT]}))
    assert (trace.format, trace.owner.role, trace.owner.rank) == ("sglang", "engine", 1)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "an empty file"),
        (b" \n", "an empty file"),
        (gzip.compress(b""), "an empty file"),
        (gzip.compress(b"[]")[:11], "the gzip stream has no end"),
        (gzip.compress(gzip.compress(b"[]")), "packed twice with gzip"),
        (lzma.compress(b"[]"), "packed with xz"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "packed with Zstandard"),
        ("[]", "no events"),
        ("[{}]", "no trace events"),
        ("[[0, 1], [2, 3]]", "memory timelines"),
        ("[1, 2]", "a JSON array that holds no events"),
        ("{}", "JSON without a traceEvents list"),
        ('{"traceEvents": {}}', "its traceEvents is no list"),
        ('{"traceEvents": [', ""),
        ({"schema": "1.0.2", "nodes": [{"id": 1}]}, "a PyTorch execution trace"),
        ({"rocprofiler-sdk-tool": []}, "rocprofiler"),
        ({"traces": [{"projectId": "p", "spans": []}]}, "Google Cloud Trace JSON"),
        ({"info": {"traceEvents": [EVENT]}}, "JSON without a traceEvents list"),
        ({"note": '"traceEvents": [{"ph": "X"}]'}, "JSON without a traceEvents list"),
        ("<!DOCTYPE html><html></html>", "an HTML or XML page"),
        (pickle.dumps([1, 2]), "a Python pickle"),
        ("\ufeffx".encode("utf-16"), "text in UTF-16"),
        ('{"kind":"process","run_id":"r"}\n{"kind":"phase"}\n', "a record file of slime-profiler"),
        ("plain words", "neither JSON"),
        ({"slime_profiler_merge": {}, "traceEvents": [EVENT]}, "a merged timeline of slime-profiler"),
        ({"traceEvents": [{**EVENT, "pid": "[TP00] 2012"}]}, "a merged trace of SGLang"),
        ({"traceEvents": [{**EVENT, "pid": "[TP00-DP01-PP00] 2012"}]}, "a merged trace of SGLang"),
    ],
)
def test_what_is_no_source_is_refused_by_name(tmp_path, content, what):
    path = write(tmp_path, content)
    if not what:
        assert open_trace(path).format == "chrome"
        return
    with pytest.raises(TraceRefusedError) as refused:
        open_trace(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert what in str(refused.value)


def test_a_database_that_is_no_report_is_refused(tmp_path):
    path = tmp_path / "a.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("create table t (x)")
    connection.commit()
    connection.close()
    with pytest.raises(TraceRefusedError, match="an SQLite database, but no export of Nsight Systems"):
        open_trace(path)


def test_a_merged_trace_of_sglang_without_labels_is_known_by_what_lies_beside_it(tmp_path):
    write(tmp_path, KINETO, "run1-TP-0.trace.json")
    merged = write(tmp_path, KINETO, "merged-run1.trace.json")
    with pytest.raises(TraceRefusedError, match="beside the files it was made of"):
        open_trace(merged)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("run1-TP-0.trace.json.gz", ("run1", "", {"tp": 0})),
        (
            "run1-TP-1-DP-2-PP-3-EP-4-EXTEND.trace.json",
            ("run1", "EXTEND", {"tp": 1, "dp": 2, "pp": 3, "ep": 4}),
        ),
        ("1789.25-TP-0-decode.trace.json.gz", ("1789.25", "DECODE", {"tp": 0})),
        ("DECODE-run1-rollout0009-TP-0.trace.json.gz", ("run1-rollout0009", "DECODE", {"tp": 0})),
        ("my-prefix-run1-TP-0.trace.json.gz", ("my-prefix-run1", "", {"tp": 0})),
    ],
)
def test_names_of_engines(name, told):
    assert parse_engine_name(name) == told


@pytest.mark.parametrize(
    "name", ["TP-0-PP-1.trace.json", "merged-run1.trace.json.gz", "rank0.json", "HTTP-9.json"]
)
def test_other_names_are_no_engines(name):
    assert parse_engine_name(name) is None


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("rank-1.nodeA.4242.pt.trace.json", Owner(rank=1, detail="nodeA.4242")),
        ("rank0.json", Owner(rank=0)),
        ("rank_3.json.gz", Owner(rank=3)),
        ("trace_rank0.json", Owner(rank=0, detail="trace")),
        ("rank0_step10.json", Owner(rank=0, detail="step10")),
        ("worker3_step_12.1694128201557.pt.trace.json", Owner(rank=3, detail="step_12.1694128201557")),
        ("worker0.1623143089861.pt.trace.json.gz", Owner(rank=0, detail="1623143089861")),
        ("actor-3.1790000000000000000.pt.trace.json", Owner("actor", 3)),
        ("critic-x.1790000000000000000.pt.trace.json.gz", Owner("critic")),
        ("TP-0-PP-1.trace.json", Owner(ranks={"tp": 0, "pp": 1}, detail="TP-0-PP-1")),
        ("gpu07_4244.1723000000000000000.pt.trace.json", Owner(detail="gpu07_4244.1723000000000000000")),
        ("worker3_4244.1723000000000000000.pt.trace.json", Owner(detail="worker3_4244.1723000000000000000")),
        ("local_rank2.json", Owner(detail="local_rank2")),
        ("node_rank1_rank9.json", Owner(rank=9, detail="node_rank1")),
        ("tp_rank_1.json", Owner(ranks={"tp": 1}, detail="tp_rank_1")),
        ("crank3.json", Owner(detail="crank3")),
        ("2026-11-30_host12.json", Owner(detail="2026-11-30_host12")),
    ],
)
def test_owner_by_name_alone(tmp_path, name, owner):
    assert open_trace(write(tmp_path, KINETO, name)).owner == owner


def test_what_the_file_says_goes_before_its_name(tmp_path):
    info = {"backend": "nccl", "rank": 5, "world_size": 8}
    trace = open_trace(write(tmp_path, {"distributedInfo": info, **KINETO}, "rank0_step10.json"))
    assert trace.owner == Owner(rank=5, world_size=8, detail="step10")
    ours = {"role": "critic", "rank": 2, "ranks": {"tp": 1}, "world_size": 4}
    content = {"distributedInfo": info, "slime_profiler": ours, **KINETO}
    trace = open_trace(write(tmp_path, content, "actor-0.1.pt.trace.json"))
    assert trace.owner == Owner("critic", 2, {"tp": 1}, 4)


@pytest.mark.parametrize(
    "info", [{"backend": "nccl"}, {"rank": "3"}, {"rank": -1}, {"rank": True}, [], None, 3]
)
def test_no_rank_where_none_is_told(tmp_path, info):
    assert open_trace(write(tmp_path, {"distributedInfo": info, **KINETO})).owner.rank is None


def test_an_engine_by_its_name(tmp_path):
    owner = open_trace(write(tmp_path, KINETO, "DECODE-run1-TP-1.trace.json")).owner
    assert owner == Owner("engine", 1, {"tp": 1}, None, "DECODE run1", "run1", "DECODE")
    assert open_trace(write(tmp_path, KINETO, "run1-TP-1-PP-1.trace.json")).owner.rank is None


@pytest.mark.parametrize(
    ("keys", "base"),
    [
        ({"baseTimeNanoseconds": 5}, 5),
        ({"baseTimeNanoseconds": "1790857026000000000"}, 1790857026000000000),
        ({"viztracer_metadata": {"version": "1", "baseTimeNanoseconds": 6}}, 6),
        ({"baseTimeNanoseconds": True}, None),
        ({"baseTimeNanoseconds": 0}, None),
        ({"baseTimeNanoseconds": 2**63}, None),
        ({"baseTimeNanoseconds": "soon"}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("count", [1, 3000, 20_000])
def test_base_is_found_before_and_behind_the_events(tmp_path, keys, base, count):
    events = [{**EVENT, "args": {"list": [{"n": number}]}} for number in range(count)]
    more = {"list": [{"a": [{}]}], "traceName": "x"}
    for content in ({**keys, **more, "traceEvents": events}, {"traceEvents": events, **more, **keys}):
        text = json.dumps(content).encode()
        for packed in (text, gzip.compress(text, 1)):
            header = read_header(write(tmp_path, packed))
            assert header.base_ns == base
            assert header.metadata == {**keys, **more}
