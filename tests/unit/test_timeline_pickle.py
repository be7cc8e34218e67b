from __future__ import annotations

import copy
import functools
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


@pytest.fixture(params=[False, True], ids=["off", "on"])
def recording(request, tmp_path):
    if request.param:
        assert timeline.start({"out": str(tmp_path), "outputs": {"nvtx": False}}, run_id="sent")
    yield request.param
    timeline.stop()


@pytest.mark.usefixtures("recording")
def test_a_phase_or_span_that_is_copied_or_sent_does_nothing():
    cloudpickle = pytest.importorskip("ray.cloudpickle")
    span = timeline.begin("generate")
    phase = timeline.phase("reward", step=1)
    with phase:
        for send in (copy.copy, copy.deepcopy, through(pickle), through(cloudpickle)):
            for there in (send(phase), send([phase])[0]):
                with there:
                    pass
            there = send(span)
            with there.inside():
                there.end(bytes=1)
    span.end()


@pytest.mark.usefixtures("recording")
@pytest.mark.parametrize("method", ["phase", "mark", "begin"])
def test_the_calls_themselves_may_be_copied_and_sent(method):
    cloudpickle = pytest.importorskip("ray.cloudpickle")
    call = getattr(timeline, method)
    for send in (copy.copy, copy.deepcopy, through(pickle), through(cloudpickle)):
        assert send(call) == call
        assert send(functools.partial(call, "x")).func == call


@pytest.mark.parametrize("module", ["pickle", "ray.cloudpickle"])
def test_sent_to_a_process_that_does_not_record_they_do_nothing(tmp_path, module):
    pickling = pytest.importorskip(module)
    assert timeline.start({"out": str(tmp_path), "outputs": {"nvtx": False}}, run_id="sent")
    sent = pickling.dumps((timeline.phase, timeline.mark, timeline.begin))
    timeline.stop()
    phase, mark, begin = pickle.loads(sent)
    with phase("reward", step=1):
        mark("here")
        begin("generate").end(bytes=1)
    assert not list(tmp_path.rglob("*.jsonl"))


def through(pickling):
    return lambda thing: pickle.loads(pickling.dumps(thing))


@pytest.mark.usefixtures("recording")
def test_what_is_refused_is_refused_off_and_on():
    span = timeline.begin("generate")
    for wrong in (
        lambda: span.end("ok"),
        lambda: span.inside(1),
        timeline.phase,
        lambda: timeline.phase("a", "b"),
        lambda: timeline.mark("a", "b"),
        lambda: timeline.begin("a", "b"),
        lambda: timeline.phase("a").end(),
        lambda: timeline.flush(1),
        timeline.set_rollout,
        timeline.rollout,
    ):
        with pytest.raises((TypeError, AttributeError)):
            wrong()
    assert not hasattr(span, "__enter__")
    assert span.end(bytes=1) is None
