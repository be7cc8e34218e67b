"""What the public calls record."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recordings import read_recording, stop

from slime_profiler_plugin import schema, timeline

Record = Callable[..., Any]


def start(out: Path, **identity: Any) -> None:
    given = {"run_id": "run", "role": "actor", "rank": 0, **identity}
    assert timeline.start({"out": str(out), "outputs": {"nvtx": False}}, **given)


def test_a_cancelled_span_is_not_recorded_and_another_says_late_what_it_belongs_to(tmp_path: Path) -> None:
    start(tmp_path)
    cancelled = timeline.begin("bucket_ready")
    with cancelled.inside(), timeline.phase("tp_gather"):
        pass
    cancelled.cancel()
    cancelled.end()
    waited = timeline.begin("train_wait")
    waited.set_rollout(7)
    waited.end()
    waited.cancel()
    refused = timeline.begin("train_wait")
    refused.set_rollout(-1)
    refused.end()
    got = stop(tmp_path)
    assert [(phase.name, phase.rollout) for phase in got.phases] == [
        ("tp_gather", "initial"),
        ("train_wait", 7),
        ("train_wait", "initial"),
    ]
    assert [drop.what for drop in got.drops] == ["rollout"]
    timeline.begin("off").cancel()
    timeline.begin("off").set_rollout(1)


def test_phases_nest(tmp_path: Path) -> None:
    start(tmp_path)
    with timeline.phase("train_step"):
        with timeline.phase("forward_backward"):
            with timeline.phase("forward"):
                timeline.mark("here")
            with timeline.phase("backward"):
                pass
        with timeline.phase("optimizer"):
            pass
    got = stop(tmp_path)
    assert got.parent_names() == {
        "train_step": None,
        "forward_backward": "train_step",
        "forward": "forward_backward",
        "backward": "forward_backward",
        "optimizer": "train_step",
    }
    (mark,) = got.all(schema.Mark)
    assert (mark.name, mark.parent) == ("here", got.one("forward").id)
    outer, inner = got.one("forward_backward"), got.one("backward")
    assert outer.start_ns <= inner.start_ns
    assert inner.start_ns + inner.dur_ns <= outer.start_ns + outer.dur_ns
    assert len({p.id for p in got.phases}) == 5


def test_fields_have_columns_of_their_own_or_go_to_attrs(tmp_path: Path) -> None:
    start(tmp_path)
    with timeline.phase(
        "bucket_send", bytes=7, bucket=1, tensors=2, transport="nccl", sync=3, engine=0, name="x"
    ):
        pass
    with timeline.phase(
        "bucket_ack", step=4, source="a", weight_version="9", engine="e1", colour="red", bytes="many"
    ):
        pass
    got = stop(tmp_path)
    send = got.one("bucket_send")
    assert (send.bytes, send.bucket, send.tensors, send.transport, send.sync, send.engine) == (
        7,
        1,
        2,
        "nccl",
        3,
        0,
    )
    assert send.attrs == {"name": "x"}
    ack = got.one("bucket_ack")
    assert (ack.step, ack.source, ack.weight_version, ack.engine, ack.bytes) == (4, "a", "9", "e1", None)
    assert ack.attrs == {"colour": "red", "bytes": "many"}


def test_an_exception_is_noted_and_goes_on_unchanged(tmp_path: Path) -> None:
    start(tmp_path)
    error = ValueError("no\nsuch thing")

    def fail() -> None:
        with timeline.phase("train_step"), timeline.phase("forward"):
            raise error

    with pytest.raises(ValueError, match="no\nsuch thing") as caught:
        fail()
    with timeline.phase("optimizer"):
        pass
    assert caught.value is error
    assert error.__context__ is None
    got = stop(tmp_path)
    assert got.one("forward").error == got.one("train_step").error == "ValueError: no such thing"
    assert got.one("optimizer").error is None
    assert got.one("optimizer").parent is None


def test_exception_whose_text_cannot_be_had(tmp_path: Path) -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    start(tmp_path)
    with pytest.raises(OddError), timeline.phase("train_step"):
        raise OddError
    assert stop(tmp_path).one("train_step").error == "OddError"


def test_a_span_may_end_on_another_thread_and_only_once(tmp_path: Path) -> None:
    start(tmp_path)
    with timeline.phase("rollout"):
        span = timeline.begin("generate", step=1)
        with timeline.phase("reward"):
            pass
    with ThreadPoolExecutor(1) as pool:
        pool.submit(span.end, bytes=3).result()
    span.end(bytes=4)
    got = stop(tmp_path)
    generate = got.one("generate")
    assert (generate.step, generate.bytes) == (1, 3)
    assert generate.tid == threading.get_native_id()
    assert got.parent_names() == {"rollout": None, "generate": "rollout", "reward": "rollout"}


def test_threads_have_their_own_parents_and_names(tmp_path: Path) -> None:
    start(tmp_path)
    barrier = threading.Barrier(3)

    def work(name: str) -> None:
        with timeline.phase(f"{name}_outer"):
            barrier.wait(20)
            with timeline.phase(f"{name}_inner"):
                barrier.wait(20)

    threads = [threading.Thread(target=work, args=(n,), name=f"worker-{n}") for n in "abc"]
    with timeline.phase("main"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    got = stop(tmp_path)
    expected: dict[str, str | None] = {"main": None}
    for n in "abc":
        expected |= {f"{n}_outer": None, f"{n}_inner": f"{n}_outer"}
    assert got.parent_names() == expected
    names = {thread.tid: thread.name for thread in got.all(schema.Thread)}
    for n in "abc":
        assert names[got.one(f"{n}_inner").tid] == f"worker-{n}"
        assert got.lines.index(
            next(t for t in got.all(schema.Thread) if t.name == f"worker-{n}")
        ) < got.lines.index(got.one(f"{n}_inner"))


def test_interleaving_tasks_have_their_own_parents_and_lanes(tmp_path: Path) -> None:
    start(tmp_path)

    async def sample(name: str, turns: list[asyncio.Event], mine: int) -> None:
        with timeline.phase(f"{name}_generate"):
            turns[mine].set()
            await turns[1 - mine].wait()
            with timeline.phase(f"{name}_reward"):
                await asyncio.sleep(0)
                timeline.mark(name)
                for _ in range(5 * mine):  # b goes on after a has ended
                    await asyncio.sleep(0)

    async def rollout() -> None:
        turns = [asyncio.Event(), asyncio.Event()]
        await asyncio.gather(sample("a", turns, 0), sample("b", turns, 1))

    with timeline.phase("rollout"):
        asyncio.run(rollout())
    with timeline.phase("after"):
        pass
    got = stop(tmp_path)
    assert got.parent_names() == {
        "rollout": None,
        "a_generate": "rollout",
        "b_generate": "rollout",
        "a_reward": "a_generate",
        "b_reward": "b_generate",
        "after": None,
    }
    a, b = got.one("a_generate"), got.one("b_generate")
    assert a.start_ns < b.start_ns < a.start_ns + a.dur_ns < b.start_ns + b.dur_ns, "they did not interleave"
    assert a.task is not None
    assert b.task is not None
    assert a.task != b.task
    assert got.one("a_reward").task == a.task
    assert got.one("rollout").task is None
    assert {m.name: m.parent for m in got.all(schema.Mark)} == {
        "a": got.one("a_reward").id,
        "b": got.one("b_reward").id,
    }


def test_to_thread_keeps_the_parent_and_leaves_the_thread_clean(tmp_path: Path) -> None:
    start(tmp_path)

    def blocking(name: str) -> None:
        with timeline.phase(name):
            pass

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        with timeline.phase("generate"):
            await asyncio.to_thread(blocking, "in_thread")
        await asyncio.to_thread(blocking, "later")

    asyncio.run(main())
    assert stop(tmp_path).parent_names() == {"generate": None, "in_thread": "generate", "later": None}


Tree = list[Any]
trees = st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=3), max_leaves=12)


@settings(max_examples=30, deadline=None)
@given(trees=st.lists(trees, min_size=1, max_size=4))
def test_parents_are_those_of_the_program_however_tasks_interleave(
    tmp_path_factory: pytest.TempPathFactory, trees: list[Tree]
) -> None:
    out = tmp_path_factory.mktemp("run")
    numbers = itertools.count()
    expected: dict[str, str | None] = {}

    def enter(parent: str | None) -> tuple[str, Any]:
        name = f"p{next(numbers)}"
        expected[name] = parent
        return name, timeline.phase(name)

    def plain(tree: Tree, parent: str | None) -> None:
        name, phase = enter(parent)
        with phase:
            for branch in tree:
                plain(branch, name)

    async def task(tree: Tree, parent: str | None) -> None:
        name, phase = enter(parent)
        with phase:
            await asyncio.sleep(0)
            for branch in tree[1:]:
                await task(branch, name)
                await asyncio.sleep(0)
            if tree:  # a task begun inside a phase stands in it
                await asyncio.gather(task(tree[0], name), asyncio.sleep(0))

    async def tasks() -> None:
        await asyncio.gather(*(task(tree, None) for tree in trees))

    start(out)
    for tree in trees:
        plain(tree, None)
    asyncio.run(tasks())
    assert stop(out).parent_names() == expected


def test_rollouts_nest_and_the_process_has_one(tmp_path: Path) -> None:
    start(tmp_path)
    with timeline.phase("first"):
        timeline.set_rollout(0)
        with timeline.phase("inside"):
            pass
    with timeline.rollout(5):
        with timeline.rollout(6), timeline.phase("six"):
            timeline.set_rollout(1)
        with timeline.phase("five"):
            pass
    with timeline.phase("one"):
        pass
    got = stop(tmp_path)
    assert {p.name: p.rollout for p in got.phases} == {
        "first": "initial",
        "inside": 0,
        "six": 6,
        "five": 5,
        "one": 1,
    }


def test_tasks_have_their_own_rollouts(tmp_path: Path) -> None:
    start(tmp_path)

    async def work(rollout: int) -> None:
        with timeline.rollout(rollout):
            await asyncio.sleep(0)
            with timeline.phase(f"r{rollout}"):
                await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(work(r) for r in range(3)))

    asyncio.run(main())
    assert {p.name: p.rollout for p in stop(tmp_path).phases} == {"r0": 0, "r1": 1, "r2": 2}


@pytest.mark.parametrize(
    ("role", "rollout"), [("engine", None), ("engine_client", None), ("router", None), ("actor", "initial")]
)
def test_the_default_rollout_is_the_role_s(tmp_path: Path, role: str, rollout: str | None) -> None:
    start(tmp_path, role=None)
    timeline.set_identity(role=role)
    with timeline.phase("x"):
        pass
    assert stop(tmp_path).one("x").rollout == rollout


@pytest.mark.parametrize("bad", [-1, "latest", 1.5, True])
def test_a_rollout_that_is_none_is_refused_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: object
) -> None:
    start(tmp_path)
    timeline.set_rollout(bad)  # type: ignore[arg-type]
    timeline.set_rollout(bad)  # type: ignore[arg-type]
    with timeline.rollout(bad), timeline.phase("x"):  # type: ignore[arg-type]
        pass
    timeline.set_rollout(4)
    with timeline.phase("y"), timeline.rollout(5), timeline.phase("z"):
        pass
    got = stop(tmp_path)
    assert {p.name: p.rollout for p in got.phases} == {"x": "initial", "y": 4, "z": 5}
    assert [(d.what, d.count) for d in got.drops] == [("rollout", 3)]
    (warning,) = caplog.records
    assert warning.getMessage() == (
        "slime_profiler_plugin: a value for the rollout is ignored: "
        f"ValueError: rollout {bad!r} is neither a number >= 0 nor 'initial' nor None"
    )


def test_a_program_full_of_bad_values_is_warned_of_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start(tmp_path)
    for n in range(1, 101):
        timeline.set_rollout(-n)
    with timeline.phase("x"):
        pass
    got = stop(tmp_path)
    assert sum(d.count for d in got.drops) == 100
    assert len(got.drops) == 21
    assert len(caplog.records) == 20


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"engine": 0}, 'engine: 0 is not allowed; allowed: an object such as {"index": 0}'),
        ({"rank": -1}, "rank -1 is negative"),
        ({"rank": 4}, "rank 4 is not below world_size 4"),
        ({"rank": "1"}, "rank: '1' is not allowed; allowed: a whole number >= 0"),
        ({"role": "a-b"}, "role 'a-b' may hold letters, digits and _ only"),
        (
            {"rank": 3, "rang": 3},
            "identity: unknown key rang; allowed: role, rank, ranks, world_size, engine",
        ),
    ],
)
def test_an_identity_that_cannot_be_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: dict[str, Any], told: str
) -> None:
    start(tmp_path, role="driver", world_size=4)
    timeline.set_identity(**bad)
    timeline.set_identity(**bad)
    timeline.set_identity(rank=2, engine={"index": 1})
    with timeline.phase("x"):
        pass
    got = stop(tmp_path)
    (line,) = got.all(schema.Identity)
    assert (line.role, line.rank, line.world_size, line.engine) == ("driver", 2, 4, {"index": 1})
    assert [(d.what, d.reason, d.count) for d in got.drops] == [("identity", f"IdentityError: {told}", 2)]
    assert [record.getMessage() for record in caplog.records] == [
        f"slime_profiler_plugin: a value for the identity is ignored: IdentityError: {told}"
    ]


@pytest.mark.parametrize(
    ("told", "rank", "world_size"),
    [
        ({"role": "engine"}, None, None),
        ({"role": "actor"}, 1, 2),
        ({"rank": 5}, 5, None),
        ({"world_size": 3}, 1, 3),
        ({"role": "engine", "rank": 0, "world_size": 1}, 0, 1),
    ],
)
def test_the_environments_rank_is_forgotten_where_it_was_anothers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: dict[str, Any],
    rank: int | None,
    world_size: int | None,
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    start(tmp_path, role=None, rank=None)
    timeline.set_identity(**told)
    with timeline.phase("x"):
        pass
    got = stop(tmp_path)
    assert (got.lines[0].rank, got.lines[0].world_size) == (1, 2)
    (line,) = got.all(schema.Identity)
    assert (line.rank, line.world_size) == (rank, world_size)


def test_identity_that_becomes_known(tmp_path: Path) -> None:
    start(tmp_path, role=None, rank=None)
    with timeline.phase("early"):
        pass
    timeline.set_identity(role="actor", rank=3, ranks={"tp": 1, "dp": 0}, world_size=4)
    with timeline.phase("late"):
        pass
    assert timeline.source() == f"actor-3@{timeline.source().split('@')[1]}"  # type: ignore[union-attr]
    source = timeline.source()
    got = stop(tmp_path)
    process = got.lines[0]
    assert (process.role, process.rank, process.world_size) == (None, None, None)
    (line,) = got.all(schema.Identity)
    assert (line.role, line.rank, line.ranks, line.world_size) == ("actor", 3, {"tp": 1, "dp": 0}, 4)
    order = [got.lines.index(x) for x in (got.one("early"), line, got.one("late"))]
    assert order == sorted(order)
    assert source == f"actor-3@{process.incarnation}"


def test_one_of_several_without_a_token_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    start(tmp_path, world_size=2)
    assert timeline.start(rank=1)
    timeline.stop()
    (record,) = caplog.records
    assert "SLIME_PROFILER_LAUNCH" in record.getMessage()


def test_a_second_start_only_tells_the_identity(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    start(tmp_path, rank=None)
    assert timeline.start()
    assert timeline.start({"out": str(tmp_path), "outputs": {"nvtx": False}})
    assert caplog.records == []
    assert timeline.start({"out": str(tmp_path / "other")}, run_id="other", rank=2)
    assert timeline.start("no_such_configuration")
    assert timeline.start("off")
    (warning,) = caplog.records
    assert warning.getMessage() == (
        "slime_profiler_plugin: start() was called again, with another configuration; it is not used, "
        "and recording goes on as it began. Call stop() first"
    )
    with timeline.phase("x"):
        pass
    got = stop(tmp_path)
    assert [line.rank for line in got.all(schema.Identity)] == [2]
    assert not (tmp_path / "other").exists()


def test_a_phase_object_may_be_used_again(tmp_path: Path) -> None:
    start(tmp_path)
    phase = timeline.phase("again", step=1)
    for _ in range(3):
        with phase:
            pass
    with phase, phase:
        timeline.mark("inside")
    with timeline.phase("after"):
        pass
    got = stop(tmp_path)
    assert [p.name for p in got.phases] == ["again"] * 4 + ["after"]
    assert len({p.id for p in got.phases}) == 5
    assert {p.parent for p in got.phases} == {None}


def test_a_generator_that_ends_an_outer_phase_first_leaves_no_stale_parent(tmp_path: Path) -> None:
    start(tmp_path)

    def generator() -> Iterator[None]:
        with timeline.phase("a"):
            yield

    steps = generator()
    next(steps)
    with timeline.phase("b"):
        steps.close()
        with timeline.phase("c"):
            pass
    with timeline.phase("d"):
        pass
    assert stop(tmp_path).parent_names() == {"a": None, "b": "a", "c": "b", "d": None}


def test_traced_keeps_what_a_function_is(tmp_path: Path) -> None:
    @timeline.traced("plain", step=1)
    def plain(x: int, *, y: int) -> int:
        "Doc."
        return x + y

    @timeline.traced("coroutine")
    async def coroutine(x: int) -> int:
        await asyncio.sleep(0)
        return x

    @timeline.traced("generator")
    def generator() -> Iterator[int]:
        yield 1

    @timeline.traced("async_generator")
    async def async_generator() -> AsyncIterator[int]:
        yield 1

    assert plain.__name__ == "plain"
    assert plain.__doc__ == "Doc."
    assert inspect.signature(plain) == inspect.signature(plain.__wrapped__)  # type: ignore[attr-defined]
    assert inspect.iscoroutinefunction(coroutine)
    assert inspect.isgeneratorfunction(generator)
    assert inspect.isasyncgenfunction(async_generator)

    async def gather() -> list[int]:
        return [await coroutine(3), *[item async for item in async_generator()]]

    def use() -> list[int]:
        return [plain(1, y=2), *generator(), *asyncio.run(gather())]

    assert use() == [3, 1, 3, 1]
    start(tmp_path)
    assert use() == [3, 1, 3, 1]
    got = stop(tmp_path)
    assert sorted(p.name for p in got.phases) == ["async_generator", "coroutine", "generator", "plain"]
    assert got.one("plain").step == 1
    assert use() == [3, 1, 3, 1]


def test_a_traced_generator_is_parent_of_its_own_body_only(tmp_path: Path) -> None:
    @timeline.traced("stream")
    def stream() -> Any:
        received = []
        for n in range(2):
            with timeline.phase(f"body{n}"):
                pass
            try:
                received.append((yield n))
            except KeyError as error:
                received.append(error)
        return received

    start(tmp_path)
    steps = stream()
    with timeline.phase("consumer"):
        assert next(steps) == 0
        with timeline.phase("between"):
            pass
        assert steps.send("sent") == 1
        thrown = KeyError("thrown")
        with pytest.raises(StopIteration) as stopped:
            steps.throw(thrown)
    assert stopped.value.value == ["sent", thrown]
    got = stop(tmp_path)
    assert got.parent_names() == {
        "body0": "stream",
        "body1": "stream",
        "between": "consumer",
        "stream": "consumer",
        "consumer": None,
    }
    assert got.one("stream").error is None


def test_a_traced_async_generator_is_parent_of_its_own_body_only(tmp_path: Path) -> None:
    closed = []

    @timeline.traced("stream")
    async def stream() -> AsyncIterator[int]:
        try:
            for n in range(3):
                with timeline.phase(f"body{n}"):
                    await asyncio.sleep(0)
                yield n
        finally:
            closed.append(True)

    async def main() -> None:
        with timeline.phase("consumer"):
            steps = stream()
            async for n in steps:
                with timeline.phase(f"between{n}"):
                    await asyncio.sleep(0)
                if n == 1:
                    break
            await steps.aclose()  # type: ignore[attr-defined]

    start(tmp_path)
    asyncio.run(main())
    got = stop(tmp_path)
    assert closed == [True]
    assert got.parent_names() == {
        "body0": "stream",
        "body1": "stream",
        "between0": "consumer",
        "between1": "consumer",
        "stream": "consumer",
        "consumer": None,
    }
    assert got.one("stream").error is None


def test_a_traced_generator_that_raises(tmp_path: Path) -> None:
    @timeline.traced("stream")
    def stream() -> Iterator[int]:
        yield 1
        raise ValueError("end of it")

    start(tmp_path)
    with pytest.raises(ValueError, match="end of it"):
        list(stream())
    assert stop(tmp_path).one("stream").error == "ValueError"


def test_only_used_definitions_are_in_the_file(tmp_path: Path) -> None:
    start(tmp_path)
    for _ in range(2):
        with timeline.phase("forward"):
            pass
        with timeline.phase("never_defined"):
            pass
    got = stop(tmp_path)
    (definition,) = got.all(schema.PhaseDef)
    assert (definition.name, definition.parents) == ("forward", ("forward_backward",))
    assert got.lines.index(definition) < got.lines.index(got.phases[0])


def test_start_and_stop_again_are_two_processes_on_disk(tmp_path: Path) -> None:
    for out in (tmp_path / "a", tmp_path / "b"):
        start(out)
        with timeline.phase("x"):
            pass
        assert timeline.on
        stop(out)
        assert not timeline.on
    first, second = read_recording(tmp_path / "a"), read_recording(tmp_path / "b")
    assert first.lines[0].incarnation != second.lines[0].incarnation


def test_nothing_recorded_means_no_file(tmp_path: Path) -> None:
    start(tmp_path)
    timeline.set_rollout(3)
    timeline.flush()
    timeline.stop()
    assert not list(tmp_path.glob("*/records"))


def test_records_switched_off_opens_no_file(tmp_path: Path) -> None:
    threads = threading.active_count()
    outputs = {"records": False, "nvtx": False}
    assert timeline.start({"out": str(tmp_path), "outputs": outputs}, run_id="run")
    with timeline.phase("x"):
        timeline.mark("y")
    assert threading.active_count() == threads
    timeline.flush()
    timeline.stop()
    assert not list(tmp_path.glob("*/records"))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"outputs": {"nvxt": True}}, "outputs.nvxt"),
        ({"records": {"period_s": -1}}, "records.period_s"),
        ("no_such_configuration", "no_such_configuration"),
        (7, "7 is a int"),
    ],
)
def test_a_broken_configuration_is_one_warning_and_stays_off(
    config: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert timeline.start(config) is False
    assert not timeline.on
    (record,) = caplog.records
    assert record.name == "slime_profiler_plugin"
    assert told in record.getMessage()
    assert "allowed" in record.getMessage()


def test_an_identity_nobody_knows_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert timeline.start({"out": str(tmp_path)}, rang=3) is False
    assert len(caplog.records) == 1
    assert "rang" in caplog.text


def test_a_traced_async_generator_left_open_is_closed_once_by_the_ending_loop(tmp_path: Path) -> None:
    start(tmp_path)
    complaints: list[dict[str, Any]] = []
    closed: list[str] = []

    @timeline.traced("generate")
    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            closed.append("generate")

    left_open = generate()

    async def rollout() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
        assert await anext(left_open) == 1

    asyncio.run(rollout())
    assert complaints == []
    assert closed == ["generate"]
    assert stop(tmp_path).one("generate").error is None
