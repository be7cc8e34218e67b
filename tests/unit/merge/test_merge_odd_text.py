"""What is no text, or not there, makes no output that is no JSON."""

from __future__ import annotations

from merged_trace import read_merged

from slime_profiler_plugin.merge import MergeOptions, merge_traces


def test_half_surrogates_in_what_a_trace_says_of_itself(tmp_path):
    source, out = tmp_path / "odd.json", tmp_path / "out.json"
    deep = "[" * 400 + '"\\ud800"' + "]" * 400
    source.write_text(
        '{"note\\ud800": 1, "é": "x\\udc00", "o": {"\\ud800": ["\\ud83d\\ude00"]}, '
        f'"deep": {deep}, "traceEvents": [{{"ph": "X", "name": "a", "pid": 1, "ts": 1, "dur": 1}}]}}'
    )
    merge_traces([source], out, MergeOptions(jobs=1))
    (told,) = read_merged(out)["slime_profiler_merge"]["sources"]
    assert {**told["metadata"], "deep": 0} == {"note?": 1, "é": "x?", "o": {"?": ["😀"]}, "deep": 0}


def test_the_end_of_an_arrow_whose_start_has_no_name(tmp_path):
    source, out = tmp_path / "arrow.json", tmp_path / "out.json"
    common = '"cat": "c", "id": 1, "pid": 1, "tid": 1'
    source.write_text(
        '[{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 5}, '
        f'{{"ph": "s", {common}, "ts": 2}}, {{"ph": "f", "name": "end", {common}, "ts": 3, "bp": "e"}}]'
    )
    report = merge_traces([source], out, MergeOptions(jobs=1))
    start, end = [event for event in read_merged(out)["traceEvents"] if event["ph"] in "sf"]
    assert ("name" in start, "name" in end) == (False, False)
    assert start["id"] == end["id"]
    assert report.outputs[0].counts["arrows"] == 1
