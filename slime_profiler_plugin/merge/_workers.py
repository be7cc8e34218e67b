"""Worker processes for the two readings of traces.

Tasks are taken up in their order and results given in it; which worker does what changes nothing. Workers are
forked, so they cost no imports; a process with other threads, where a fork is not safe, does all itself.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Final, Generic, NamedTuple, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

#: Less than this, in bytes of files, is not worth a second process.
_SMALL: Final = 4 << 20
#: Of glibc's malloc.h: what is freed at the heap's end goes back beyond so much, and blocks from so much on
#: are mapped one by one. The second is the most that glibc takes.
_M_TRIM_THRESHOLD: Final = -1
_TRIM_BYTES: Final = 256 << 20
_M_MMAP_THRESHOLD: Final = -3
_MMAP_BYTES: Final = 32 << 20
#: How often the progress is told while workers work, s.
_PERIOD_S: Final = 0.2


class WorkerError(RuntimeError):
    """A worker process ended before its work was done; the message says how."""


class Failed(NamedTuple):
    """What a task raised."""

    error: BaseException


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


class Workers(Generic[Task, Result]):
    """Runs `work(task, advance)` on tasks, in up to `jobs` processes.

    `sizes` are bytes of each task's file; `tell` is called with the bytes read so far.
    """

    def __init__(self, work: Callable[[Task, Callable[[int], None]], Result], jobs: int) -> None:
        self._work = work
        self._jobs = jobs

    def run(
        self, tasks: Sequence[Task], sizes: Sequence[int], tell: Callable[[int], None]
    ) -> Iterator[Result]:
        """The results, in the order of the tasks. What a task raises is raised here; `WorkerError` where a
        process ends without an answer.
        """
        jobs = min(self._jobs, len(tasks))
        if jobs <= 1 or sum(sizes) < _SMALL or threading.active_count() > 1:
            yield from self._run_here(tasks, tell)
            return
        with _Pool(self._work, tasks, jobs) as pool:
            yield from pool.results(tell)

    def _run_here(self, tasks: Sequence[Task], tell: Callable[[int], None]) -> Iterator[Result]:
        done = 0

        def advance(read: int) -> None:
            nonlocal done
            done += read
            tell(done)

        for task in tasks:
            yield self._work(task, advance)


class _Pool(Generic[Task, Result]):
    """Forked processes, each with a pipe; they end with this object, or when its process does."""

    def __init__(
        self, work: Callable[[Task, Callable[[int], None]], Result], tasks: Sequence[Task], jobs: int
    ) -> None:
        self._tasks = tasks
        context = multiprocessing.get_context("fork")
        self._read = context.RawArray("q", jobs)
        self._workers: list[tuple[Any, Connection]] = []
        try:
            for number in range(jobs):
                ours, theirs = context.Pipe()
                others = [connection for _, connection in self._workers] + [ours]
                process = context.Process(
                    target=_serve, args=(work, tasks, theirs, others, self._read, number), daemon=True
                )
                process.start()
                theirs.close()
                self._workers.append((process, ours))
        except BaseException:
            self.__exit__()
            raise

    def results(self, tell: Callable[[int], None]) -> Iterator[Result]:
        todo = iter(range(len(self._tasks)))
        busy: dict[Connection, tuple[Any, int]] = {}
        for process, connection in self._workers:
            self._give(connection, process, todo, busy)
        found: dict[int, Result] = {}
        wanted = 0
        while wanted < len(self._tasks):
            for ready in wait(list(busy), _PERIOD_S):
                assert isinstance(ready, Connection)
                process, number = busy.pop(ready)
                found[number] = self._receive(ready, process)
                self._give(ready, process, todo, busy)
            tell(sum(self._read))
            while wanted in found:
                yield found.pop(wanted)
                wanted += 1

    @staticmethod
    def _give(
        connection: Connection, process: Any, todo: Iterator[int], busy: dict[Connection, tuple[Any, int]]
    ) -> None:
        number = next(todo, None)
        if number is not None:
            try:
                connection.send(number)
            except OSError:
                raise _tell_end(process) from None
            busy[connection] = (process, number)

    @staticmethod
    def _receive(connection: Connection, process: Any) -> Any:
        try:
            answer = connection.recv()
        except (EOFError, OSError):
            raise _tell_end(process) from None
        if isinstance(answer, Failed):
            raise answer.error
        return answer

    def __enter__(self) -> _Pool[Task, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        for process, connection in self._workers:
            connection.close()
            process.terminate()
        for process, _connection in self._workers:
            process.join()


def _portable(error: Exception) -> Exception:
    """The error, or one that says the same, where it cannot be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except (pickle.PicklingError, AttributeError, TypeError):
        return WorkerError(f"{type(error).__name__}: {error}")
    return error


def _tell_end(process: Any) -> WorkerError:
    """What became of a worker that does not answer."""
    process.join()
    code = process.exitcode
    how = f"was killed by signal {-code} (out of memory?)" if code < 0 else f"ended with status {code}"
    return WorkerError(f"a worker process {how}")


def _keep_freed_memory() -> None:
    """Lets this process use freed memory again instead of getting it anew for every piece of a trace.

    That is two thirds of the time the kernel takes. Without glibc there is nothing to set.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    set_option(_M_TRIM_THRESHOLD, _TRIM_BYTES)
    set_option(_M_MMAP_THRESHOLD, _MMAP_BYTES)


def _serve(
    work: Callable[[Any, Callable[[int], None]], Any],
    tasks: Sequence[Any],
    connection: Connection,
    others: list[Connection],
    read: Any,
    number: int,
) -> None:
    """A worker: takes numbers of tasks, gives results, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for other in others:
        other.close()
    _keep_freed_memory()

    def advance(count: int) -> None:
        read[number] += count

    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        answer: Any
        try:
            answer = work(tasks[task], advance)
        except Exception as error:  # noqa: BLE001 - raised again in the parent
            answer = Failed(_portable(error))
        try:
            connection.send(answer)
        except OSError:  # nobody is there any more
            return
