"""Counters are written such that Perfetto shows each value, and counts no error."""

from __future__ import annotations

import json

import pytest
from merged_trace import events_of

from slime_profiler_plugin.merge import MergeOptions, merge_traces
from slime_profiler_plugin.merge._counters import read_counter

CASES = [
    ('{"a": 3, "b": -2.5e3}', '{"a": 3, "b": -2.5e3}'),
    ("{}", "{}"),
    ("", "{}"),
    ("5", "{}"),
    ("[1]", "{}"),
    ('{"a": "1.5", "b": "+10.", "c": " .75", "d": "050"}', '{"a":1.5,"b":10.0,"c":0.75,"d":50.0}'),
    ('{"a": "1.5e", "b": ".", "c": "-", "d": "5 ", "e": "0x10", "f": "nan", "g": 1}', '{"g":1}'),
    ('{"a": null, "b": true, "c": {"d": 1}, "e": [], "f": 0}', '{"f":0}'),
    ('{"a": 1e400, "b": 9007199254740993, "c": 123456789012345678901234567890}', None),
]


@pytest.mark.parametrize(("args", "written"), CASES)
def test_what_is_no_number_is_left_out(args, written):
    found, values = read_counter(args.encode())
    written = written or '{"b":9007199254740993,"c":1.2345678901234568e29}'
    assert json.loads(found) == json.loads(written)
    assert values == len(json.loads(written))


def test_perfetto_counts_no_error_and_the_report_the_values(tmp_path, perfetto):
    counters = [
        {"ph": "C", "name": f"c{number}", "pid": 1, "tid": 1, "ts": number}
        | ({"args": "ARGS"} if args else {})
        for number, (args, _) in enumerate(CASES)
    ]
    text = json.dumps([{"ph": "XXX", "name": "a", "pid": 1, "tid": 1, "ts": 0, "dur": 9}, *counters])
    for args, _ in CASES:
        if args:
            text = text.replace('"ARGS"', args, 1)
    source, out = tmp_path / "counters.json", tmp_path / "out.json"
    source.write_text(text)
    report = merge_traces([source], out, MergeOptions(jobs=1))
    (counted,), (sliced,), errors = perfetto.query(
        out, "select count(*) as n from counter", "select name, dur from slice"
    )
    assert errors == []
    assert sliced == {"name": "a", "dur": 9000}
    (output,) = report.outputs
    assert output.counts == {"slices": 1, "values of counters": counted["n"]}
    assert counted["n"] == 2 + 4 + 1 + 1 + 2
    assert output.mended == {
        "counter whose values are not all numbers, written with those that are": 7,
        "phase of several letters, written as the first": 1,
    }
    assert len(events_of(out)) - len(CASES) > 1
