"""Samples that slime dumped, in merged files."""

import pytest
from traces import merge

from slime_profiler_plugin.check import check_paths
from slime_profiler_plugin.merge import MergeOptions, merge_paths
from slime_profiler_plugin.testing import MS, write_synthetic_run

torch = pytest.importorskip("torch")

from test_engine_extras import ROLLOUTS  # noqa: E402 - after what skips

AT = 1_790_000_000.0


def events(first, count=1):
    made = []
    for number in range(count):
        start = first + number
        made += [
            {"type": "span_start", "name": "generate", "ts": start, "span_id": f"a{number}"},
            {"type": "span_start", "name": "inner", "ts": start + 0.25, "span_id": f"b{number}",
             "parent_span_id": f"a{number}"},
            {"type": "event", "name": "note", "ts": start + 0.5, "attrs": {"x": 1}},
            {"type": "span_end", "name": "inner", "ts": start + 0.5, "span_id": f"b{number}"},
            {"type": "span_end", "name": "generate", "ts": start + 0.75, "span_id": f"a{number}"},
        ]  # fmt: skip
    return made


def save(path, traces, rollout=3):
    samples = [
        {"index": i, "group_index": i // 4, "trace": {"sample_id": i, "group_id": i // 4, "events": each}}
        for i, each in enumerate(traces)
    ]
    torch.save({"rollout_id": rollout, "samples": samples}, path)
    return path


def test_perfetto_shows_a_track_for_each_sample(tmp_path, perfetto):
    path = save(tmp_path / "rollout_3.pt", [events(AT + i / 4) for i in range(6)])
    report, merged = merge([path], tmp_path / "out.json")
    assert set(merged.processes.values()) == {"samples of rollout 3"}
    assert [each.clock for each in report.inputs] == ["wall clock"]
    rows, errors = perfetto.query(
        tmp_path / "out.json",
        "select thread.name as track, slice.name, ts, dur, depth from slice join thread_track "
        "on slice.track_id = thread_track.id join thread using (utid) order by thread.tid, ts, depth",
    )
    assert errors == []
    start = rows[0]["ts"]
    ms = 1_000_000
    assert [(r["track"], r["name"], r["ts"] - start, r["dur"], r["depth"]) for r in rows] == [
        row
        for i in range(6)
        for row in [
            (f"group {i // 4} · sample {i}", "generate", 250 * i * ms, 750 * ms, 0),
            (f"group {i // 4} · sample {i}", "inner", (250 * i + 250) * ms, 250 * ms, 1),
            (f"group {i // 4} · sample {i}", "note", (250 * i + 500) * ms, 0, rows[3 * i + 2]["depth"]),
        ]
    ]


def test_open_spans_stray_ends_and_no_times_are_counted(tmp_path):
    odd = [
        {"type": "span_start", "name": "open", "ts": AT, "span_id": "a"},
        {"type": "span_end", "name": "stray", "ts": AT + 1, "span_id": "b"},
        {"type": "event", "name": "nan", "ts": float("nan")},
        {"type": "event", "name": "last", "ts": AT + 2},
    ]
    report, merged = merge([save(tmp_path / "r.pt", [odd])], tmp_path / "out.json")
    (output,) = report.outputs
    assert output.total.dropped == {"event without a time": 1, "end without a begin": 1}
    assert output.mended["slice that never ends, written to the end of its file"] == 1
    assert [(e["name"], e["dur"]) for e in merged.events if e["ph"] == "X"] == [("open", "2000000.0")]


def test_train_and_eval_dumps_of_one_rollout_are_told_apart(tmp_path):
    paths = [save(tmp_path / name, [events(AT)]) for name in ("rollout_3.pt", "rollout_eval_3.pt")]
    _, merged = merge(paths, tmp_path / "out.json")
    assert set(merged.processes.values()) == {"samples of rollout 3", "eval samples of rollout 3"}


def test_beside_a_run_they_go_where_they_lie_in_time(tmp_path):
    made = write_synthetic_run(tmp_path / "runs")
    at = (made.driver.epoch_ns + ROLLOUTS[1] + 100 * MS) / 1e9
    path = save(tmp_path / "rollout_1.pt", [events(at)], rollout=1)
    report = merge_paths([made.folder, path], "all", tmp_path / "out", None, MergeOptions(jobs=1))
    found = {}
    for output in report.outputs:
        output.total.check()
        (ledger,) = [s for s in output.sources if "rollout_1.pt" in s.source]
        found[output.rollouts[0]] = (ledger.written, ledger.other_rollouts)
    assert found[1] == (3, 0)
    assert found[0] == (0, 3)


def test_ten_thousand_samples(tmp_path):
    many = [[{"type": "event", "name": "note", "ts": AT + i}] for i in range(9_999)]
    path = save(tmp_path / "r.pt", [*many, events(AT, 300)])
    report, merged = merge([path], tmp_path / "out.json.gz")
    assert report.outputs[0].total.written == 9_999 + 900
    assert len(merged.threads) == 10_000


def test_check_finds_nothing_in_a_sound_dump_and_names_what_is_no_dump(tmp_path):
    path = save(tmp_path / "r.pt", [events(AT + 0.1)])
    assert check_paths([path]).findings == []
    torch.save({"model": torch.ones(3)}, tmp_path / "ckpt.pt")
    (finding,) = check_paths([tmp_path / "ckpt.pt"]).findings
    assert (finding.code, "a file of torch.save" in finding.message) == ("SP401", True)


class Odd:
    """A class that nobody loads."""


def test_refused_dump_costs_no_other_source_anything(tmp_path):
    good = save(tmp_path / "rollout_3.pt", [events(AT)])
    bad = save(tmp_path / "rollout_4.pt", [[{"type": "event", "name": "a", "ts": AT, "attrs": Odd()}]], 4)
    report, merged = merge([good, bad], tmp_path / "out.json")
    assert [(d.file, d.kind) for d in report.damage] == [(str(bad), "refused")]
    assert "Odd, which is not loaded" in report.damage[0].reason
    assert len(merged.events) == 3
