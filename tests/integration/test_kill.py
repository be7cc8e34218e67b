"""How a recording process may end, and what each end may cost.

The children say on their standard output what they have recorded, so what was lost is known.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from recordings import Recording, environment, read_recording, record_files

from slime_profiler_plugin import schema

PERIOD_S = 0.25
#: Lateness of threads and processes on a loaded machine; no part of what is claimed.
LATENESS_S = 1.0

START = """
import os, signal, sys, threading, time
from slime_profiler_plugin import timeline

def start():
    settings = {"out": sys.argv[1], "outputs": {"nvtx": False}, "records": {"period_s": %s}}
    assert timeline.start(settings, run_id="run", role="actor", rank=0)

def tell(text):
    os.write(1, (str(text) + "\\n").encode())

def record(n):
    for i in range(n):
        with timeline.phase("train_step", step=i):
            pass
"""


class Child:
    """A recording process and what it has said."""

    def __init__(self, program: str, out: Path, period_s: float = PERIOD_S) -> None:
        self.out = out
        self.process = subprocess.Popen(
            [sys.executable, "-c", START % period_s + program, str(out)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.communicate()

    def wait_for(self, line: str) -> None:
        """Read on until the child says `line`."""
        assert self.process.stdout is not None
        for said in self.process.stdout:
            if said == f"{line}\n":
                return
        raise AssertionError(f"the child ended: {self.process.communicate()[1]}")

    def read_line(self) -> str:
        """The next line it says."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self, number: signal.Signals | None = None) -> tuple[int, list[str]]:
        """Its exit status after the signal, and what else it said."""
        if number is not None:
            self.process.send_signal(number)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        said = self.process.stdout.read()  # not communicate: it passes by what is buffered here
        errors = self.process.stderr.read()
        self.process.wait(60)
        assert "Traceback" not in errors, errors
        return self.process.returncode, said.split()

    def recording(self) -> Recording:
        return read_recording(self.out)


BUSY = """
start()
tell("go")
i = 0
while True:
    with timeline.phase("train_step", step=i):
        time.sleep(0.0005)
    tell(i)
    i += 1
"""


@pytest.mark.timeout(300)
def test_fifty_sigkills_lose_at_most_one_period_each(tmp_path: Path) -> None:
    moments = random.Random(20)
    delays = [moments.uniform(0.05, 1.2) for _ in range(50)]

    def kill(number: int) -> None:
        with Child(BUSY, tmp_path / str(number)) as child:
            child.wait_for("go")
            child.wait_for("0")
            began_ns = time.monotonic_ns()
            time.sleep(delays[number])
            killed_ns = time.monotonic_ns()
            status, said = child.end(signal.SIGKILL)
        assert status == -signal.SIGKILL
        told = int(said[-1]) if said else 0
        in_file, last_flush_ns = whole_lines(child.out)
        assert in_file == list(range(len(in_file))), "lost in the middle"
        assert len(in_file) <= told + 2
        # What was lost came after the last flush, or there was none yet.
        assert (killed_ns - (last_flush_ns or began_ns)) / 1e9 <= PERIOD_S + LATENESS_S

    with ThreadPoolExecutor(5) as pool:
        for done in [pool.submit(kill, number) for number in range(50)]:
            done.result()


def whole_lines(out: Path) -> tuple[list[int], int]:
    """The steps recorded, and the monotonic time of the last sign of life, 0 without a file.

    A kill in the middle of a write may leave a last line that is not whole.
    """
    files = record_files(out)
    if not files:
        return [], 0
    raw = files[0].read_bytes()
    lines = [schema.decode_line(line)[0] for line in raw[: raw.rfind(b"\n") + 1].splitlines()]
    steps = [line.step for line in lines if isinstance(line, schema.Phase)]
    clocks = [line.mono_ns for line in lines if isinstance(line, schema.Clock)]
    return steps, max(clocks, default=0)  # type: ignore[return-value]


def test_killed_inside_a_phase(tmp_path: Path) -> None:
    program = """
start()
with timeline.phase("train_step"):
    with timeline.phase("weight_sync", sync=3):
        record(5)
        tell("inside")
        time.sleep(600)
"""
    with Child(program, tmp_path) as child:
        child.wait_for("inside")
        wait_until(lambda: len([x for x in lines_so_far(tmp_path) if isinstance(x, schema.Open)]) == 2)
        child.end(signal.SIGKILL)
    got = child.recording()
    by_name = {line.name: line for line in got.all(schema.Open)}
    assert by_name.keys() == {"train_step", "weight_sync"}
    sync = by_name["weight_sync"]
    assert (sync.sync, sync.parent, sync.rollout) == (3, by_name["train_step"].id, "initial")
    assert sync.seen_ns - sync.start_ns >= 1_000_000_000
    assert {p.parent for p in got.phases} == {sync.id}
    assert not got.all(schema.End)


def test_an_open_line_is_written_once_and_superseded(tmp_path: Path) -> None:
    program = """
start()
with timeline.phase("weight_sync"):
    tell("inside")
    sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", START % 0.05 + program, str(tmp_path)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        wait_until(lambda: any(isinstance(x, schema.Open) for x in lines_so_far(tmp_path)))
        flushes = count_flushes(tmp_path)
        wait_until(lambda: count_flushes(tmp_path) > flushes + 3)
        child.communicate(b"\n", timeout=60)
    got = read_recording(tmp_path)
    (seen,) = got.all(schema.Open)
    assert got.one("weight_sync").id == seen.id
    assert got.lines.index(seen) < got.lines.index(got.one("weight_sync"))
    got.check_counts()


def test_sigterm_loses_nothing_and_ends_as_without_us(tmp_path: Path) -> None:
    with Child(BUSY, tmp_path, period_s=60) as child:
        child.wait_for("300")
        status, said = child.end(signal.SIGTERM)
    assert status == -signal.SIGTERM
    got = child.recording()
    steps = [p.step for p in got.phases]
    assert steps == list(range(len(steps)))
    told = int(said[-1]) if said else 300
    assert len(steps) in (told + 1, told + 2)
    assert got.end.reason == "SIGTERM"
    got.check_counts()


def test_sigterm_inside_a_phase_leaves_it_open(tmp_path: Path) -> None:
    program = """
start()
with timeline.phase("weight_sync"):
    record(3)
    tell("inside")
    time.sleep(600)
"""
    with Child(program, tmp_path, period_s=60) as child:
        child.wait_for("inside")
        assert child.end(signal.SIGTERM)[0] == -signal.SIGTERM
    got = child.recording()
    assert [x.name for x in got.all(schema.Open)] == ["weight_sync"]
    assert len(got.phases) == 3


def test_sigterm_inside_a_profiler_window_counts_it_as_lost(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = """
timeline.start({"out": sys.argv[1], "records": {"period_s": 60}, "profiler": {"activities": ["cpu"]}},
               run_id="run", role="actor", rank=0, world_size=1)
timeline.set_rollout(0)
record(1)
tell("inside")
time.sleep(600)
"""
    with Child(program, tmp_path) as child:
        child.wait_for("inside")
        assert child.end(signal.SIGTERM)[0] == -signal.SIGTERM
    got = child.recording()
    assert [(d.what, d.reason, d.count) for d in got.all(schema.Drop)] == [
        ("trace", "window not written: SIGTERM", 1)
    ]
    assert len(got.phases) == 1


#: As in a collective: no signal makes it return, and no Python code runs meanwhile.
BLOCK = """
import ctypes
libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
libc.pthread_mutex_init(mutex, None)
libc.pthread_mutex_lock(mutex)
tell("blocked")
libc.pthread_mutex_lock(mutex)
"""


def test_sigterm_while_the_main_thread_is_blocked_in_c(tmp_path: Path) -> None:
    with Child("start()\nrecord(300)\ntimeline.begin('collective')" + BLOCK, tmp_path, period_s=60) as child:
        child.wait_for("blocked")
        assert child.end(signal.SIGTERM)[0] == -signal.SIGTERM
    got = child.recording()
    assert len(got.phases) == 300
    assert [line.name for line in got.all(schema.Open)] == ["collective"]
    assert got.end.reason == "SIGTERM"
    got.check_counts()


def test_sigterm_in_a_forked_child_that_is_blocked_ends_the_child(tmp_path: Path) -> None:
    """It has neither our handler nor the parent's way of being watched."""
    program = f"""
start()
record(3)
child = os.fork()
if child == 0:
{textwrap.indent(BLOCK, "    ")}
tell(child)
status = os.waitpid(child, 0)[1]
tell(os.WTERMSIG(status))
record(2)
"""
    with Child(program, tmp_path, period_s=60) as child:
        said = {child.read_line(), child.read_line()}
        (pid,) = said - {"blocked"}
        os.kill(int(pid), signal.SIGTERM)
        assert child.end() == (0, [str(int(signal.SIGTERM))])
    got = child.recording()
    assert len(got.phases) == 5
    assert got.end.reason == "exit"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_handler_of_the_program_is_left_alone(tmp_path: Path, when: str) -> None:
    program = f"""
def handler(number, frame):
    tell("theirs")
    sys.exit(7)
when = {when!r}
if when == "before":
    signal.signal(signal.SIGTERM, handler)
start()
record(3)
if when == "after":
    signal.signal(signal.SIGTERM, handler)
assert signal.getsignal(signal.SIGTERM) is handler
tell("ready")
time.sleep(600)
"""
    with Child(program, tmp_path, period_s=60) as child:
        child.wait_for("ready")
        assert child.end(signal.SIGTERM) == (7, ["theirs"])
    got = child.recording()
    assert len(got.phases) == 3
    assert got.end.reason == "exit"


def test_a_later_handler_that_calls_ours_goes_on(tmp_path: Path) -> None:
    program = """
start()
record(3)
before = signal.getsignal(signal.SIGTERM)
def handler(number, frame):
    if callable(before):
        before(number, frame)
    tell("theirs")
signal.signal(signal.SIGTERM, handler)
os.kill(os.getpid(), signal.SIGTERM)
record(2)
signal.signal(signal.SIGTERM, before)
tell("ready")
time.sleep(600)
"""
    with Child(program, tmp_path, period_s=60) as child:
        child.wait_for("theirs")
        child.wait_for("ready")
        assert child.end(signal.SIGTERM) == (-signal.SIGTERM, [])
    got = child.recording()
    assert len(got.phases) == 5
    assert got.end.reason == "SIGTERM"
    got.check_counts()


@pytest.mark.parametrize("busy_with", ["timeline.stop()", "sys.exit()", "timeline.flush()"])
def test_sigterm_while_the_last_flush_is_under_way(tmp_path: Path, busy_with: str) -> None:
    program = f"""
start()
real_write = os.write
def slow(fd, data):
    if threading.current_thread() is not threading.main_thread():
        real_write(1, b"writing\\n")
        time.sleep(0.5)
    return real_write(fd, data)
os.write = slow
record(300)
{busy_with}
time.sleep(600)
"""
    with Child(program, tmp_path, period_s=60) as child:
        child.wait_for("writing")
        assert child.end(signal.SIGTERM)[0] == -signal.SIGTERM
    got = child.recording()
    assert len(got.phases) == 300
    assert got.end
    got.check_counts()


def test_an_ignored_sigterm_stays_ignored(tmp_path: Path) -> None:
    program = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
start()
record(3)
assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
os.kill(os.getpid(), signal.SIGTERM)
record(2)
tell("alive")
"""
    with Child(program, tmp_path, period_s=60) as child:
        assert child.end() == (0, ["alive"])
    got = child.recording()
    assert len(got.phases) == 5
    assert got.end.reason == "exit"


def test_off_the_main_thread_sigterm_is_not_touched(tmp_path: Path) -> None:
    program = """
def work():
    start()
    record(3)
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
timeline.flush()
record(2)
assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
timeline.stop()
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
tell("ready")
time.sleep(600)
"""
    with Child(program, tmp_path, period_s=60) as child:
        child.wait_for("ready")
        assert child.end(signal.SIGTERM)[0] == -signal.SIGTERM
    assert len(child.recording().phases) == 5


def test_a_recorder_that_was_started_and_never_used_takes_no_signal(tmp_path: Path) -> None:
    program = """
start()
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
tell("ready")
time.sleep(600)
"""
    with Child(program, tmp_path) as child:
        child.wait_for("ready")
        assert child.end(signal.SIGTERM)[0] == -signal.SIGTERM
    assert not record_files(tmp_path)


def test_a_file_system_that_hangs_does_not_keep_the_process(tmp_path: Path) -> None:
    program = """
from slime_profiler_plugin.record import _recorder
_recorder.CLOSE_TIMEOUT_S = 0.3
start()
real_write = os.write
def hang(fd, data):
    if threading.current_thread() is threading.main_thread():
        return real_write(fd, data)
    threading.Event().wait()
os.write = hang
record(3)
tell("ready")
time.sleep(600)
"""
    with Child(program, tmp_path) as child:
        child.wait_for("ready")
        assert child.end(signal.SIGTERM)[0] == -signal.SIGTERM


@pytest.mark.parametrize(
    ("ending", "status", "reason"),
    [
        ("", 0, "exit"),
        ("sys.exit(5)", 5, "exit"),
        ("timeline.stop()", 0, "stop"),
        ("timeline.stop(); timeline.stop()", 0, "stop"),
        ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT, "exit"),
    ],
)
def test_clean_ends_lose_nothing(tmp_path: Path, ending: str, status: int, reason: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", START % 60 + f"start()\nrecord(100)\n{ending}", str(tmp_path)],
        env=environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == status, child.stderr
    got = read_recording(tmp_path)
    assert [p.step for p in got.phases] == list(range(100))
    assert got.end.reason == reason
    got.check_counts()


def test_an_uncaught_exception_is_shown_as_without_us(tmp_path: Path) -> None:
    program = START % 60 + 'start()\nwith timeline.phase("train_step"):\n    raise KeyError("theirs")'
    child = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 1
    assert child.stderr.splitlines()[-1] == "KeyError: 'theirs'"
    assert "slime_profiler" not in child.stderr
    assert read_recording(tmp_path).one("train_step").error == "KeyError: 'theirs'"


def lines_so_far(out: Path) -> list[object]:
    """Whole lines of a file that is being written."""
    files = record_files(out)
    raw = files[0].read_bytes() if files else b""
    return [schema.decode_line(line)[0] for line in raw[: raw.rfind(b"\n") + 1].splitlines()]


def count_flushes(out: Path) -> int:
    return len([line for line in lines_so_far(out) if isinstance(line, schema.Clock)])


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Return when `condition()` holds; fail after `seconds`."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it never came true"
        time.sleep(0.02)


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize(("ending", "reason"), [("", "exit"), ("timeline.stop()", "stop"), ("1 / 0", "exit")])
def test_children_of_multiprocessing(tmp_path: Path, method: str, ending: str, reason: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        START % 60
        + f"""
import multiprocessing
from multiprocessing import util

def work():
    start()
    record(100)
    util.Finalize(None, record, args=(5,), exitpriority=-10)
    {ending}

if __name__ == "__main__":
    child = multiprocessing.get_context({method!r}).Process(target=work)
    child.start()
    child.join(60)
    sys.exit(child.exitcode)
"""
    )
    out = tmp_path / "out"
    child = subprocess.run(
        [sys.executable, str(script), str(out)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == (1 if "/" in ending else 0), child.stderr
    assert "slime_profiler" not in child.stderr
    got = read_recording(out)
    assert len(got.phases) == (100 if reason == "stop" else 105)
    assert got.end.reason == reason
    got.check_counts()
