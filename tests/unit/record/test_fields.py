"""What becomes of the values a program gives as fields."""

from __future__ import annotations

import asyncio
import enum
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from recordings import stop

from slime_profiler_plugin import schema, timeline
from slime_profiler_plugin.record._fields import MOST_VALUES, plain


class Tensor:
    """Something of the program's: not to be printed, and gone when the program lets it go."""

    gone_in: str = ""

    def __repr__(self) -> str:
        raise AssertionError("printed")

    __str__ = __repr__

    def __del__(self) -> None:
        Tensor.gone_in = threading.current_thread().name


class Step(enum.IntEnum):
    FIRST = 4


@pytest.fixture(autouse=True)
def recording(tmp_path: Path) -> Iterator[None]:
    assert timeline.start(
        {"out": str(tmp_path), "outputs": {"nvtx": False}}, run_id="run", role="actor", rank=0
    )
    yield
    timeline.stop()


def with_phase(**fields: Any) -> None:
    with timeline.phase("x", **fields):
        pass


def with_mark(**fields: Any) -> None:
    timeline.mark("x", **fields)


def at_begin(**fields: Any) -> None:
    timeline.begin("x", **fields).end()


def at_end(**fields: Any) -> None:
    timeline.begin("x").end(**fields)


@pytest.mark.parametrize("record", [with_phase, with_mark, at_begin, at_end])
def test_nothing_is_kept_alive_and_all_is_named(tmp_path: Path, record: Callable[..., None]) -> None:
    tensor = Tensor()
    known = weakref.ref(tensor)
    record(step=1, bytes=tensor, transport=tensor, shapes=[tensor, (2, {"inner": tensor, tensor: 1})])
    del tensor
    assert known() is None
    assert Tensor.gone_in == threading.current_thread().name
    got = stop(tmp_path)
    (line,) = [x for x in got.lines if isinstance(x, (schema.Phase, schema.Mark))]
    assert (line.step, line.bytes, line.transport) == (1, None, None)
    assert line.attrs == {
        "bytes": "<Tensor>",
        "transport": "<Tensor>",
        "shapes": ["<Tensor>", [2, {"inner": "<Tensor>", "<Tensor>": 1}]],
    }


def test_a_container_is_as_it_was_when_it_was_given(tmp_path: Path) -> None:
    sizes = [1, 2]
    with timeline.phase("x", sizes=sizes):
        sizes.append(3)
    assert stop(tmp_path).one("x").attrs == {"sizes": [1, 2]}


def test_numbers_become_plain_and_large_containers_are_cut() -> None:
    got = plain({"step": Step.FIRST, "part": Fraction(1, 4), "huge": Fraction(10**400), "many": [0] * 5000})
    assert (got["step"], type(got["step"])) == (4, int)
    assert got["part"] == 0.25
    assert type(got["huge"]).__qualname__ == "Fraction"
    assert got["many"] == [0] * MOST_VALUES


def test_a_container_within_itself_ends() -> None:
    ring: list[Any] = []
    ring.append(ring)
    (_, inner) = ("", plain({"ring": ring})["ring"])
    assert type(inner[0][0][0][0]).__qualname__ == "list"


def test_a_chain_of_tasks_keeps_no_ended_phases() -> None:
    async def link(left: int) -> None:
        with timeline.phase("link"):
            following = asyncio.ensure_future(link(left - 1)) if left else None
        if following is not None:
            await asyncio.sleep(0)
            alive.append(following)

    alive: list[Any] = []

    async def run() -> int:
        await link(300)
        while len(alive) < 300:
            await asyncio.sleep(0)
        gc.collect()
        kind = type(timeline.phase("x"))
        return sum(
            type(thing) is kind and thing.name == "link" and thing.before is not None
            for thing in gc.get_objects()
        )

    assert asyncio.run(run()) == 0
