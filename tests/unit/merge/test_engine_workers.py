"""Worker processes: results in order, failures told, nothing left behind."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from slime_profiler_plugin.merge import _workers
from slime_profiler_plugin.merge._workers import WorkerError, Workers
from slime_profiler_plugin.read import ReadError, TraceRefusedError

LARGE = [8 << 20] * 8


def children():
    """Processes that this one started and that have not been waited for."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        found += (task / "children").read_text().split()
    return [int(pid) for pid in found]


@pytest.fixture(autouse=True)
def _no_child_is_left():
    before = children()
    yield
    assert children() == before


def run(work, tasks, jobs=3, sizes=LARGE, tell=lambda _: None):
    return list(Workers(work, jobs).run(tasks, sizes[: len(tasks)], tell))


def test_results_come_in_the_order_of_the_tasks_whatever_finishes_first():
    def work(task, advance):
        time.sleep(0.15 if task == 0 else 0)
        advance(10)
        return task, os.getpid()

    told = []
    results = run(work, list(range(8)), tell=told.append)
    assert [task for task, _ in results] == list(range(8))
    assert os.getpid() not in {pid for _, pid in results}
    assert told == sorted(told)
    assert told[-1] == 80


@pytest.mark.parametrize(("jobs", "sizes"), [(1, LARGE), (3, [10] * 8)])
def test_one_job_and_little_work_stay_in_this_process(jobs, sizes):
    assert set(run(lambda _task, _advance: os.getpid(), [1, 2, 3], jobs, sizes)) == {os.getpid()}


def test_no_process_is_forked_beside_other_threads():
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        assert set(run(lambda _task, _advance: os.getpid(), [1, 2, 3])) == {os.getpid()}
    finally:
        stop.set()
        other.join()


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize(
    "error",
    [
        ReadError("x: no"),
        TraceRefusedError("x: merged", is_merged=True),
        OSError(28, "No space", "x"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_task_raises_is_raised_here(error, jobs):
    def work(task, _advance):
        if task == 2:
            raise error
        time.sleep(0.05)
        return task

    with pytest.raises(type(error)) as raised:
        run(work, list(range(6)), jobs)
    assert raised.value.args == error.args
    assert vars(raised.value) == vars(error)


def test_error_that_cannot_be_sent_is_told_as_such(capfd):
    class OwnError(Exception):
        def __init__(self):
            super().__init__(lambda: None)

    def work(_task, _advance):
        raise OwnError

    with pytest.raises(WorkerError, match="OwnError"):
        run(work, [1, 2])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("place", [0, 3, 7])
def test_killed_worker_is_an_error_and_no_hang(place):
    def work(task, _advance):
        if task == place:
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    with pytest.raises(WorkerError, match="killed by signal 9"):
        run(work, list(range(8)))


def test_worker_that_dies_between_two_tasks_is_an_error(monkeypatch):
    real = _workers._Pool._receive

    def receive(connection, process):
        answer = real(connection, process)
        process.kill()
        process.join()
        return answer

    monkeypatch.setattr(_workers._Pool, "_receive", staticmethod(receive))
    with pytest.raises(WorkerError, match="killed by signal 9"):
        run(lambda task, _advance: task, list(range(8)), jobs=2)


def test_answer_that_is_cut_is_an_error():
    def work(_task, _advance):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return b"x" * (64 << 20)

    def slowly():
        for result in Workers(work, 2).run([1, 2, 3, 4], LARGE, lambda _: None):
            time.sleep(1)
            yield result

    with pytest.raises(WorkerError, match="killed by signal 9"):
        list(slowly())


def test_results_that_nobody_wants_any_more_leave_no_process():
    results = Workers(lambda task, _advance: task, 3).run(list(range(8)), LARGE, lambda _: None)
    assert next(results) == 0
    assert children()
    results.close()
