"""A trace that is still being written while it is merged."""

import json

import pytest

from slime_profiler_plugin.merge import MergeOptions, _assemble, merge_traces
from slime_profiler_plugin.read import VanishedError


def test_trace_that_grows_between_the_two_readings_is_told_and_nothing_is_written(tmp_path, monkeypatch):
    path = tmp_path / "rank0.json"
    event = {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    path.write_text(json.dumps([event]))
    survey = _assemble.survey_trace

    def survey_and_grow(task, advance):
        found = survey(task, advance)
        path.write_text(json.dumps([event, event]))
        return found

    monkeypatch.setattr(_assemble, "survey_trace", survey_and_grow)
    with pytest.raises(VanishedError, match="has changed while it was merged"):
        merge_traces([path], tmp_path / "o.json", MergeOptions(jobs=1))
    assert [each.name for each in tmp_path.iterdir()] == ["rank0.json"]
