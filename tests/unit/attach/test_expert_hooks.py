"""The hooks for expert parallelism in one process."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recordings import stop

from slime_profiler_plugin import timeline
from slime_profiler_plugin.attach import expert_parallel
from slime_profiler_plugin.attach.expert_parallel import attach, hook, phase, ranges


@pytest.fixture
def out(tmp_path: Path) -> Path:
    assert timeline.start({"out": str(tmp_path), "outputs": {"nvtx": False}})
    return tmp_path


class Group:
    def __init__(self, size: int, rank: int) -> None:
        self._size, self._rank = size, rank

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return self._rank


class Tensor:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def test_group_and_sizes_of_each_call_are_noted(out):
    groups = [Group(3, 1), Group(5, 4)]

    def count(_tokens: Tensor, weights: Any) -> int:
        return len(weights)

    send = hook("dispatch", count, group=lambda *_, **__: groups.pop(0), layer=2)
    assert send(Tensor(8), [Tensor(4), Tensor(4)]) == 2
    assert send(Tensor(8), weights=()) == 0
    found = stop(out).phases
    assert [(p.name, p.bytes, p.tensors, p.attrs) for p in found] == [
        ("ep_dispatch", 16, 3, {"ep_size": 3, "ep_rank": 1, "layer": 2}),
        ("ep_dispatch", 8, 1, {"ep_size": 5, "ep_rank": 4, "layer": 2}),
    ]


def test_each_step_of_a_generator_is_a_phase_and_what_lies_between_is_not(out):
    def convert(count: int) -> Iterator[int]:
        for number in range(count):
            back = yield number
            assert back in (None, "back")
        return "end"

    hooked = hook("convert", convert)
    assert inspect.isgeneratorfunction(hooked)
    steps = hooked(2)
    assert next(steps) == 0
    with timeline.phase("bucket_send"):
        assert steps.send("back") == 1
    with pytest.raises(StopIteration, match="end"):
        next(steps)
    recording = stop(out)
    sends = recording.one("bucket_send").id
    assert [p.parent for p in recording.phases if p.name == "weight_convert"] == [None, sends, None]


def test_a_generator_gets_what_is_thrown_and_is_closed(out):
    seen = []

    def convert() -> Iterator[int]:
        try:
            yield 1
            yield 2
        except KeyError:
            yield 3
        finally:
            seen.append("closed")

    steps = hook("convert", convert)()
    next(steps)
    assert steps.throw(KeyError("a")) == 3
    steps.close()
    assert seen == ["closed"]
    stop(out)


def test_attach_and_remove():
    class Owner:
        def send(self, value: int) -> tuple[str, int]:
            """Send."""
            return "sent", value

        @staticmethod
        def fetch(value: int) -> int:
            return value

        @classmethod
        def collect(cls, value: int) -> tuple[str, int]:
            return cls.__name__, value

    class Child(Owner):
        pass

    before = dict(vars(Owner))
    placed = attach(Owner, dispatch="send", combine="fetch", gather="collect")
    assert Owner.send.__doc__ == "Send."
    assert inspect.signature(Owner.send) == inspect.signature(before["send"])
    assert (Owner().send(1), Owner.fetch(2), Child.collect(3)) == (("sent", 1), 2, ("Child", 3))
    placed.remove()
    assert dict(vars(Owner)) == before

    inherited = attach(Child, dispatch="send")
    assert "send" in vars(Child)
    inherited.remove()
    assert "send" not in vars(Child)

    one = Owner()
    on_object = attach(one, dispatch="send")
    assert one.send(4) == ("sent", 4)
    on_object.remove()
    assert vars(one) == {}


def test_remove_leaves_what_others_have_put_over_it():
    class Owner:
        def send(self) -> int:
            return 1

    placed = attach(Owner, dispatch="send")
    theirs = Owner.send
    Owner.send = lambda self: theirs(self) + 1  # type: ignore[method-assign]
    placed.remove()
    assert Owner().send() == 2


def test_mistakes_are_told_where_they_are_made():
    async def coroutine() -> None: ...

    class Owner:
        def send(self) -> None: ...

    with pytest.raises(ValueError, match="'sending' is no stage of expert parallelism: dispatch, combine"):
        hook("sending", print)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no stage"):
        phase("sending")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="coroutine function"):
        hook("dispatch", coroutine)
    with pytest.raises(AttributeError):
        attach(Owner, dispatch="send", combine="fetch")
    assert not hasattr(Owner.send, "__wrapped__")


@pytest.mark.parametrize("group", ["no group", object(), Group])
def test_a_group_that_cannot_say_costs_its_fields_only(out, caplog, group):
    def broken(*_args: Any) -> Any:
        raise RuntimeError("destroyed")

    assert hook("combine", lambda: 1, group=broken)() == 1
    assert hook("combine", lambda: 1, group=group)() == 1
    with phase("gather", group=group):
        pass
    assert caplog.text.count("attach: expert_parallel failed") == 1
    recording = stop(out)
    assert [p.name for p in recording.phases] == ["ep_combine", "ep_combine", "ep_gather"]


def test_what_the_function_raises_goes_on_and_is_noted(out):
    def send() -> None:
        raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        hook("dispatch", send)()
    assert stop(out).one("ep_dispatch").error == "KeyError: 'theirs'"


def test_stages_are_phases():
    from slime_profiler_plugin.phases import BUILT_IN

    assert set(expert_parallel.STAGES.values()) <= set(BUILT_IN)


def test_ranges_of_many_ranks_are_short():
    assert ranges(list(range(0, 10_000, 8))) == "0-9992:8"
    assert ranges([]) == ""
    assert ranges([3, 2, 1]) == "3,2,1"
