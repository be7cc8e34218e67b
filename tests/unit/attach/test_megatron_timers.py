"""The timers that take the place of Megatron's, without Megatron."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recordings import Recording, stop

from slime_profiler_plugin import timeline
from slime_profiler_plugin.attach.megatron import TARGETS, instrument
from slime_profiler_plugin.attach.megatron._lend import lend
from slime_profiler_plugin.attach.megatron._names import TIMERS
from slime_profiler_plugin.attach.megatron._timers import Finalize, Timers
from slime_profiler_plugin.phases import BUILT_IN


@pytest.fixture
def out(tmp_path: Path) -> Path:
    assert timeline.start({"out": str(tmp_path), "outputs": {"nvtx": False}})
    return tmp_path


def pairs(recording: Recording) -> list[tuple[str, str | None, str | None]]:
    names = {phase.id: phase.name for phase in recording.phases}
    began = sorted(recording.phases, key=lambda phase: phase.id)
    return [(p.name, None if p.parent is None else names[p.parent], p.error) for p in began]


def end(out: Path) -> Recording:
    timeline.mark("end")  # without a record there is no file
    return stop(out)


class Inner:
    """Somebody's timers."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        return SimpleNamespace(
            start=lambda barrier=False: self.calls.append(("start", barrier)),
            stop=lambda barrier=False: self.calls.append(("stop", barrier)),
            elapsed=lambda: 3.0,
        )

    def log(self, names: list[str]) -> str:
        return " ".join(names)


def test_all_23_names_are_phases_of_the_vocabulary():
    assert len(TIMERS) == 23
    assert {known.phase for known in TIMERS.values()} <= set(BUILT_IN)
    assert {phase for target in TARGETS for phase in target.phases} <= set(BUILT_IN)


def test_starts_and_stops_are_phases_inside_each_other(out):
    timers = Timers()
    timers("forward-backward", log_level=1).start(barrier=True)
    timers("forward-recv", log_level=2).start()
    timers("forward-recv").stop()
    timers("a name of next year's", log_level=1).start()
    timers("forward-compute", log_level=2).start()
    timers("forward-compute").stop()
    timers("a name of next year's").stop()
    timers("forward-backward").stop()
    recording = stop(out)
    assert pairs(recording) == [
        ("forward_backward", None, None),
        ("pp_recv", "forward_backward", None),
        ("forward", "forward_backward", None),
    ]
    assert recording.one("pp_recv").attrs == {"timer": "forward-recv"}


@pytest.mark.parametrize(("level", "names"), [(0, []), (1, ["grad_sync"]), (2, ["grad_sync", "forward"])])
def test_levels(out, level, names):
    timers = Timers(log_level=level)
    for name, at in (("all-grads-sync", 1), ("forward-compute", 2)):
        timers(name, log_level=at).start()
        timers(name).stop()
    assert [phase.name for phase in end(out).phases] == names


def test_what_an_exception_left_open_is_closed_by_the_next_start(out):
    timers = Timers()
    timers("forward-backward", log_level=1).start()
    timers("forward-compute", log_level=2).start()  # an exception passes
    timers("forward-backward", log_level=1).start()
    timers("forward-backward").stop()
    left = "LeftOpenError: an exception passed"
    assert pairs(stop(out)) == [
        ("forward_backward", None, left),
        ("forward", "forward_backward", left),
        ("forward_backward", None, None),
    ]


def test_a_stop_closes_what_is_open_inside_and_a_stray_one_nothing(out):
    timers = Timers()
    timers("backward-compute").stop()
    timers("forward-backward", log_level=1).start()
    timers("forward-compute", log_level=2).start()
    timers("forward-backward").stop()
    timers("forward-compute").stop()
    assert pairs(stop(out)) == [
        ("forward_backward", None, None),
        ("forward", "forward_backward", "LeftOpenError: an exception passed"),
    ]


def test_the_programs_own_timers_get_every_call_as_it_was_made(out):
    inner = Inner()
    timers = Timers(inner, log_level=1)
    timers("forward-compute", log_level=2).start()
    timers("forward-compute").stop()
    timers("theirs", 1).start(barrier=True)
    assert timers("theirs").elapsed() == 3.0
    assert timers.log(["a", "b"]) == "a b"
    assert inner.calls == [
        (("forward-compute",), {"log_level": 2}),
        ("start", False),
        (("forward-compute",), {}),
        ("stop", False),
        (("theirs", 1), {}),
        ("start", True),
        (("theirs",), {}),
    ]
    assert not end(out).phases


def test_what_the_programs_own_timers_raise_goes_on(out):
    def broken(*_args: Any, **_kwargs: Any) -> Any:
        raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        Timers(broken)("forward-compute", log_level=2)
    end(out)


def test_without_timers_of_the_programs_there_is_nothing_else_to_ask():
    with pytest.raises(AttributeError):
        Timers().log(["a"])
    with pytest.raises(AttributeError):
        Timers()("forward-compute").elapsed()


def finalize(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Somebody's function."""
    return args, kwargs


def test_copies_and_pickles_carry_nothing_of_ours():
    assert pickle.loads(pickle.dumps(Timers())) is None
    assert pickle.loads(pickle.dumps(Finalize(finalize))) is finalize
    assert copy.copy(Finalize(finalize)) is finalize
    deep = copy.deepcopy({"timers": Timers(), "finalize": Finalize(finalize)})
    assert type(deep["timers"]) is Timers
    assert deep["finalize"](1, a=2) == ((1,), {"a": 2})
    assert deep["finalize"].__wrapped__ is finalize


def test_instrument_touches_nothing_while_off():
    config = SimpleNamespace(timers=None, finalize_model_grads_func=finalize)
    assert instrument(config) is False
    assert vars(config) == {"timers": None, "finalize_model_grads_func": finalize}


def test_instrument_reaches_every_chunk_and_every_optimizer_of_a_chain_once(out):
    configs = [SimpleNamespace(timers=None, finalize_model_grads_func=finalize) for _ in range(2)]
    parts = [SimpleNamespace(config=SimpleNamespace(timers=None)) for _ in range(2)]
    optimizer = SimpleNamespace(config=parts[0].config, chained_optimizers=parts)
    for _ in range(2):
        assert instrument(configs, optimizer)
    assert all(type(config.timers) is Timers for config in (*configs, *(part.config for part in parts)))
    assert configs[0].timers._inner is None
    assert configs[0].finalize_model_grads_func([], None) == (([], None), {})
    assert configs[0].finalize_model_grads_func.__wrapped__ is finalize
    assert [phase.name for phase in stop(out).phases] == ["finalize_grads"]


@pytest.mark.usefixtures("out")
def test_a_configuration_that_refuses_costs_a_warning(caplog):
    class Frozen:
        timers = None

        def __setattr__(self, name: str, value: object) -> None:
            raise TypeError("frozen")

    assert instrument(Frozen()) is False
    assert lend(lambda: [Frozen()], lambda: 5) == 5
    assert "frozen" in caplog.text


def test_lent_timers_are_taken_back_also_after_an_exception(out):
    theirs = object()
    config = SimpleNamespace(timers=None, finalize_model_grads_func=finalize)

    def call() -> None:
        assert type(config.timers) is Timers
        config.finalize_model_grads_func = theirs
        raise ValueError("of the program's")

    with pytest.raises(ValueError, match="of the program's"):
        lend(lambda: [config], call)
    assert config.timers is None
    assert config.finalize_model_grads_func is theirs
    end(out)
