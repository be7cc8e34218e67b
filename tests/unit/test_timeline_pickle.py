from __future__ import annotations

import pickle

import pytest

from slime_profiler_plugin import timeline


def test_the_timeline_is_sent_by_name():
    assert pickle.loads(pickle.dumps(timeline)) is timeline


def test_while_it_records_too(tmp_path, monkeypatch):
    monkeypatch.setenv("SLIME_PROFILER_OUT", str(tmp_path))
    assert timeline.start("timeline", run_id="sent")
    try:
        sent = pickle.dumps(timeline)
        assert pickle.loads(sent) is timeline
        assert len(sent) < 200
    finally:
        timeline.stop()


def test_ray_can_send_a_script_s_function_that_records():
    cloudpickle = pytest.importorskip("ray.cloudpickle")

    def work():
        with timeline.phase("reward"):
            return timeline.on

    work.__module__ = "__main__"  # sent by value, as a script's functions are
    assert cloudpickle.loads(cloudpickle.dumps(work))() is False
