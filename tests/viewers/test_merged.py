"""Merged files in Perfetto's trace_processor: no import error, and SQL gives the right values."""

import pytest

from slime_profiler_plugin import schema
from slime_profiler_plugin.merge import merge_run
from slime_profiler_plugin.testing import MS, ProcessFile, write_synthetic_run, write_trace_window

_SLICES = (
    "select s.name, s.ts, s.dur, p.name as process, t.name as thread from slice s "
    "join thread_track tt on s.track_id = tt.id join thread t using (utid) join process p using (upid) "
    "order by p.pid, s.ts, s.dur desc"
)
_ARROWS = (
    "select po.name as from_process, o.name as from_name, pi.name as to_process, i.name as to_name, "
    "count(*) as n from flow join slice o on slice_out = o.id join slice i on slice_in = i.id "
    "join thread_track oo on o.track_id = oo.id join thread x on oo.utid = x.utid "
    "join process po on x.upid = po.upid join thread_track ii on i.track_id = ii.id "
    "join thread y on ii.utid = y.utid join process pi on y.upid = pi.upid group by 1, 2, 3, 4 order by 3"
)
_ARGS = (
    "select s.name, a.key, coalesce(a.string_value, a.int_value) as value from slice s "
    "join args a using (arg_set_id) where a.key in ('args.run_id', 'args.attempt', 'args.rollout', "
    "'args.timing', 'args.sync', 'args.bytes')"
)


@pytest.mark.parametrize("rollout", ["initial", 0, 1])
def test_every_rollout_loads_clean_and_each_send_has_an_arrow_to_each_engine(perfetto, tmp_path, rollout):
    made = write_synthetic_run(tmp_path, buckets=3, engines=2, engine_host_offset_ns=7 * 10**15)
    output = merge_run([made.folder], rollout).outputs[0]
    arrows, args, errors = perfetto.query(output.path, _ARROWS, _ARGS)
    assert errors == []
    sender = "actor rank 0 · tp0 pp0 dp0 · phases"
    assert arrows == [
        {
            "from_process": sender,
            "from_name": "bucket_send",
            "to_process": f"engine {engine} · assumed: wall clock · phases",
            "to_name": "engine_receive",
            "n": 3,
        }
        for engine in (0, 1)
    ]
    values = {
        key: {row["value"] for row in args if row["key"] == f"args.{key}"}
        for key in ("run_id", "attempt", "rollout", "timing")
    }
    assert values == {"run_id": {"synthetic"}, "attempt": {0}, "rollout": {rollout}, "timing": {"host"}}
    sent = sum(row["value"] for row in args if (row["name"], row["key"]) == ("bucket_send", "args.bytes"))
    assert sent == 3 * 4096


def test_slices_have_the_recorded_times_to_the_nanosecond(perfetto, tmp_path):
    made = write_synthetic_run(tmp_path, steps=3)
    output = merge_run([made.folder], 1).outputs[0]
    slices, errors = perfetto.query(output.path, _SLICES)
    assert errors == []
    for rank, process in enumerate(made.trainers):
        recorded = sorted(
            (line.start_ns - output.base_ns, line.dur_ns, line.name)
            for line in process.lines
            if isinstance(line, schema.Phase) and line.rollout == 1
        )
        shown = [s for s in slices if s["process"] == f"actor rank {rank} · tp0 pp0 dp{rank} · phases"]
        assert sorted((s["ts"], s["dur"], s["name"]) for s in shown) == recorded


def test_crossing_slices_reused_flow_ids_and_string_processes_load_clean(perfetto, tmp_path):
    made = write_synthetic_run(tmp_path)
    at = 5_000_310 * MS
    for process in made.trainers:
        kernel = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7}
        flow = {"cat": "ac2g", "name": "ac2g", "id": 5}
        events = [
            {
                "ph": "M",
                "name": "process_labels",
                "pid": 0,
                "tid": 0,
                "ts_ns": 0,
                "args": {"labels": "GPU 0"},
            },
            {"ph": "X", "name": "launch", "pid": 1, "tid": 1, "ts_ns": at, "dur_ns": 100},
            kernel | {"name": "A", "ts_ns": at + 300, "dur_ns": 500},
            kernel | {"name": "B", "ts_ns": at + 799, "dur_ns": 500},
            flow | {"ph": "s", "pid": 1, "tid": 1, "ts_ns": at},
            flow | {"ph": "f", "bp": "e", "pid": 0, "tid": 7, "ts_ns": at + 799},
            {"ph": "X", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x", "ts_ns": at, "dur_ns": 9},
            {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts_ns": at + 900},
        ]
        write_trace_window(tmp_path, process, [0], events)
    output = merge_run([made.folder], 0).outputs[0]
    slices, arrows, errors = perfetto.query(output.path, _SLICES, _ARROWS)
    assert errors == []
    kernels = [(s["name"], s["ts"], s["dur"], s["process"]) for s in slices if s["name"] in "AB"]
    assert kernels == [
        (name, start, 500, f"actor rank {rank} · tp0 pp0 dp{rank} · gpu 0")
        for rank in (0, 1)
        for name, start in (("A", 300), ("B", 799))
    ]
    joined = [
        (a["from_process"][:12], a["from_name"], a["to_name"], a["n"]) for a in arrows if a["to_name"] == "B"
    ]
    assert joined == [("actor rank 0", "launch", "B", 1), ("actor rank 1", "launch", "B", 1)]


def test_open_phases_tasks_brackets_and_marks_load_clean(perfetto, tmp_path):
    process = ProcessFile("r", pid=1, role="actor", rank=0)
    phase = process.phase("train_step", 1000, 9000, rollout=0)
    device = {"device_type": "cuda", "device_index": 0, "stream": 7, "uncertainty_ns": 5}
    process.lines.append(schema.Device(id=phase, start_ns=1500, dur_ns=7000, **device))
    process.lines.append(schema.Mark(name="note", start_ns=1000, tid=1, rollout=0))
    for task in (1, 2):
        process.phase("reward", 2000 + task, 3000 + task, rollout=0, task=task)
    process.phase("crossing", 8000, 9001, rollout=0)
    process.open("optimizer", 8500, 20_000, rollout=0)
    process.write(tmp_path)
    output = merge_run([tmp_path / "r"], 0).outputs[0]
    slices, timing, errors = perfetto.query(
        output.path,
        _SLICES,
        "select s.name, a.string_value as timing from slice s join args a using (arg_set_id) "
        "where a.key = 'args.timing' and a.string_value != 'host'",
    )
    assert errors == []
    assert sorted((s["name"], s["ts"], s["dur"]) for s in slices) == [
        ("crossing", 7000, 1001),
        ("note", 0, 0),
        ("optimizer (open)", 7500, 11_500),
        ("reward", 1001, 1000),
        ("reward", 1002, 1000),
        ("rollout 0", 0, 19_000),
        ("train_step", 0, 8000),
        ("train_step", 500, 7000),
    ]
    assert timing == [{"name": "train_step", "timing": "device_event_bracket"}]


def test_missing_rank_is_a_process_without_slices(perfetto, tmp_path):
    made = write_synthetic_run(tmp_path, trainers=2)
    next(made.folder.glob("records/*/200-*.jsonl")).unlink()
    output = merge_run([made.folder], 0).outputs[0]
    processes, errors = perfetto.query(output.path, "select name from process where name like '%missing'")
    assert errors == []
    assert processes == [{"name": "actor rank 0 · missing"}]


def test_strings_that_end_in_a_backslash_load(perfetto, tmp_path):
    process = ProcessFile("r", pid=1, role="actor", rank=0)
    process.phase(
        "train_step", 1000, 2000, rollout=0, attrs={"path": "C:\\", "quote": 'a\\"b', "two": "\\\\"}
    )
    process.write(tmp_path)
    output = merge_run([tmp_path / "r"], 0).outputs[0]
    slices, errors = perfetto.query(output.path, _SLICES)
    assert errors == []
    assert [s["name"] for s in slices if s["name"] == "train_step"] == ["train_step"]
