"""The bounded queue: what it takes, what it drops, and that it counts exactly."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

from recordings import read_recording

from slime_profiler_plugin import schema, timeline
from slime_profiler_plugin.record._drops import Drops
from slime_profiler_plugin.record._queue import RawRecord, RecordQueue


def phase(name: str = "x", number: int = 1) -> RawRecord:
    return (name, number, None, None, 0, 1, 7, None, None, None)


def mark(name: str = "m") -> RawRecord:
    return (name, None, None, None, 0, 0, 7, None, None, None)


def test_the_newest_are_dropped_and_counted_by_name() -> None:
    drops = Drops()
    queue = RecordQueue(3, 1_000_000, drops, wake=lambda: None)
    for number in range(5):
        queue.put(phase(number=number))
    queue.put(phase("y"))
    queue.put(mark())
    queue.put(
        schema.Device(
            id=1, device_type="cuda", device_index=0, stream=0, start_ns=0, dur_ns=0, uncertainty_ns=0
        )
    )
    assert [item[1] for item in queue.take(10) if isinstance(item, tuple)] == [0, 1, 2]
    assert {(d.what, d.reason, d.count, tuple(d.names.items())) for d in drops.take()} == {
        ("phase", "queue full", 3, (("x", 2), ("y", 1))),
        ("mark", "queue full", 1, (("m", 1),)),
        ("device", "queue full", 1, ()),
    }
    assert drops.total == 5
    assert drops.take() == []


def test_the_writer_is_woken_once_per_full_write() -> None:
    wakes = []
    queue = RecordQueue(1000, 10 * 180, Drops(), wake=lambda: wakes.append(len(queue.items)))
    for _ in range(50):
        queue.put(phase())
    assert wakes == [11]
    assert len(queue.take(100)) == 50
    for _ in range(11):
        queue.put(phase())
    assert wakes == [11, 11]


def test_lines_that_others_depend_on_are_never_dropped() -> None:
    drops = Drops()
    queue = RecordQueue(1, 1000, drops, wake=lambda: None)
    queue.put(phase())
    queue.force(schema.Thread(tid=1, name="t"))
    assert len(queue.items) == 2
    assert drops.total == 0


def test_a_closed_queue_counts_what_it_holds_and_takes_nothing() -> None:
    drops = Drops()
    queue = RecordQueue(10, 1_000_000, drops, wake=lambda: None)
    queue.put(phase())
    queue.put(phase())
    queue.put(mark())
    queue.close("writer failed")
    queue.put(phase())
    queue.force(schema.Thread(tid=1, name="t"))
    assert not queue.items
    assert {(d.what, d.reason, d.count) for d in drops.take()} == {
        ("phase", "writer failed", 2),
        ("mark", "writer failed", 1),
    }


def test_drops_put_back_are_told_again_and_not_counted_twice() -> None:
    drops = Drops()
    drops.add("phase", "queue full", 2, {"x": 2})
    lines = drops.take()
    drops.add("phase", "queue full", 1, {"x": 1})
    drops.put_back(lines)
    (line,) = drops.take()
    assert (line.count, line.names) == (3, {"x": 3})
    assert drops.total == 3


def test_overflow_is_counted_exactly_whoever_records(tmp_path: Path) -> None:
    """The queue holds 100, and the writer does not come before the end."""
    threads, each = 4, 2_000
    records = {"queue": 100, "flush_bytes": 1_000_000_000, "period_s": 3600}
    assert timeline.start(
        {"out": str(tmp_path), "outputs": {"nvtx": False}, "records": records}, run_id="run"
    )

    def work(name: str) -> None:
        for _ in range(each):
            with timeline.phase(name):
                pass

    workers = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    timeline.stop()
    got = read_recording(tmp_path)
    (lost,) = [d for d in got.drops if d.what == "phase"]
    assert lost.reason == "queue full"
    written = Counter(p.name for p in got.phases)
    assert lost.count == sum(lost.names.values()) == threads * each - len(got.phases)
    for n in range(threads):
        assert written[f"w{n}"] + lost.names.get(f"w{n}", 0) == each
    assert 0 < len(got.phases) <= 100
    got.check_counts()
