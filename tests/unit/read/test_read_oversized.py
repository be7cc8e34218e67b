"""A value that is larger than anything that is read."""

import pytest

from slime_profiler_plugin.read import TraceRefusedError, _chunks, open_trace


@pytest.mark.parametrize("value", ['"' + "x" * 3000 + '"', "[" + "1," * 1500 + "1]"])
def test_before_the_events_is_the_reason_that_is_told(tmp_path, monkeypatch, value):
    monkeypatch.setattr(_chunks, "_LARGEST", 1000)
    monkeypatch.setattr("slime_profiler_plugin.read._header._HEAD", 256)
    path = tmp_path / "a.json"
    path.write_text('{"note": ' + value + ', "traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1}]}')
    with pytest.raises(
        TraceRefusedError, match="a value of more than 64 MB stands before its traceEvents list"
    ):
        open_trace(path)
