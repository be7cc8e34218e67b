"""A trace that is still being written while it is merged."""

import json

import pytest
from reading import load

from slime_profiler_plugin.merge import MergeOptions, _assemble, merge_traces
from slime_profiler_plugin.read import VanishedError

EVENT = {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}


@pytest.fixture
def merge_while(tmp_path, monkeypatch):
    """Merges `before` events of a file that has `after` when it is read again."""
    path = tmp_path / "rank0.json"
    survey = _assemble.survey_trace

    def merge(before, after):
        path.write_text(json.dumps([EVENT] * before))

        def survey_and_change(task, advance):
            found = survey(task, advance)
            path.write_text(json.dumps([EVENT] * after))
            return found

        monkeypatch.setattr(_assemble, "survey_trace", survey_and_change)
        return merge_traces([path], tmp_path / "o.json", MergeOptions(jobs=1))

    return merge


def test_of_a_trace_that_grows_what_was_there_is_written(merge_while, tmp_path):
    report = merge_while(2, 5)
    assert report.outputs[0].events == 2
    assert [e["ph"] for e in load(tmp_path / "o.json")["traceEvents"]].count("X") == 2


def test_trace_that_has_less_is_told_and_nothing_is_written(merge_while, tmp_path):
    with pytest.raises(VanishedError, match="has changed while it was merged"):
        merge_while(3, 1)
    assert [each.name for each in tmp_path.iterdir()] == ["rank0.json"]
