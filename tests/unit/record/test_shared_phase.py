"""One phase object in the hands of several threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from recordings import stop

from slime_profiler_plugin import timeline
from slime_profiler_plugin.record._context import MOST_NESTED, chain


@pytest.fixture(autouse=True)
def recording(tmp_path: Path) -> Iterator[None]:
    assert timeline.start(
        {"out": str(tmp_path), "outputs": {"nvtx": False}}, run_id="run", role="actor", rank=0
    )
    yield
    timeline.stop()


def in_thread(work: threading.Thread) -> None:
    work.start()
    work.join(20)
    assert not work.is_alive()


def test_the_second_thread_records_nothing_the_first_all(tmp_path: Path) -> None:
    shared = timeline.phase("shared")

    def other() -> None:
        with shared, timeline.phase("of_other"):
            pass

    with timeline.phase("outer"), shared:
        in_thread(threading.Thread(target=other))
        with timeline.phase("of_first"):
            pass
    got = stop(tmp_path)
    assert got.parent_names() == {"outer": None, "shared": "outer", "of_first": "shared", "of_other": None}
    assert [(d.what, d.reason, d.count, d.names) for d in got.drops] == [
        ("phase", "entered in several threads at once", 1, {"shared": 1})
    ]


def test_from_then_on_each_entry_is_a_phase_of_its_own(tmp_path: Path) -> None:
    shared = timeline.phase("shared", step=7)

    def collide() -> None:
        with shared:
            pass

    with shared:
        in_thread(threading.Thread(target=collide))

    meet = threading.Barrier(4)

    def work() -> None:
        for _ in range(5):
            meet.wait(20)
            with shared:
                meet.wait(20)
                with timeline.phase("inner"), shared:
                    pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    got = stop(tmp_path)
    by_id = {p.id: p for p in got.phases}
    entries = [p for p in got.phases if p.name == "shared"]
    assert len(entries) == 1 + 4 * 5 * 2
    assert {p.step for p in entries} == {7}
    inner = [p for p in got.phases if p.name == "inner"]
    for phase in inner:
        assert phase.parent is not None
        assert (by_id[phase.parent].name, by_id[phase.parent].tid) == ("shared", phase.tid)
    assert sum(d.count for d in got.drops) == 1


def test_many_threads_at_once_end(tmp_path: Path) -> None:
    shared = timeline.phase("shared")
    entered = 8 * 500

    def work() -> None:
        for _ in range(500):
            with shared:
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    timeline.flush()
    with timeline.phase("after"):
        pass
    got = stop(tmp_path)
    assert len([p for p in got.phases if p.name == "shared"]) + sum(d.count for d in got.drops) == entered
    assert got.one("after").parent is None


def test_a_walk_through_a_ring_ends() -> None:
    class Ring:
        id = 1
        start_ns = 1
        before: Ring

    ring = Ring()
    ring.before = ring
    assert len(list(chain(ring))) == MOST_NESTED
