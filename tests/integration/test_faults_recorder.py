"""What may go wrong around a recording process: it goes on, warns once, and counts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from recordings import Recording, environment, read_recording, record_files, run_program

START = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, from 3.12 on
from pathlib import Path
from slime_profiler_plugin import timeline
out = Path(sys.argv[1])

def start(**records):
    return timeline.start(
        {"out": str(out), "outputs": {"nvtx": False}, "records": {"period_s": 60, **records}},
        run_id="run", role="actor", rank=0,
    )

def record(n):
    for i in range(n):
        with timeline.phase("train_step", step=i):
            pass
"""
#: Fills the disk, records into the full disk, makes room, records again.
FULL_DISK = """
assert start()
record(500)
timeline.flush()
fill()
record(20_000)
timeline.flush()
make_room()
record(700)
timeline.stop()
print("went on")
"""


def check_went_on(child: subprocess.CompletedProcess[str], warning: str) -> None:
    """The program reached its end, and was told of the fault once."""
    assert child.returncode == 0, child.stderr
    assert child.stdout == "went on\n"
    (line,) = child.stderr.splitlines()
    assert warning in line


def check_full_disk(got: Recording) -> None:
    """Whole lines only, and what is missing is counted, by name and reason."""
    steps = Counter(p.step for p in got.phases)
    lost = [drop for drop in got.drops if drop.what == "phase"]
    assert {drop.names.keys() == {"train_step"} for drop in lost} == {True}
    assert {drop.reason.startswith("write failed: ") for drop in lost} == {True}
    assert len(got.phases) + sum(drop.count for drop in lost) == 21_200
    assert len(got.phases) >= 1_200
    assert all(steps[step] >= 2 for step in range(500)), "what was written before and after is whole"
    got.check_counts()


def test_a_full_disk(tmp_path: Path) -> None:
    program = (
        START
        + """
def fill():
    with open(out / "ballast", "wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError:
            pass
def make_room():
    os.unlink(out / "ballast")
"""
        + FULL_DISK
    )
    mount = tmp_path / "mount"
    saved = tmp_path / "saved"
    mount.mkdir()
    script = 'mount -t tmpfs -o size=4m tmpfs "$1" && "$2" -c "$3" "$1" && cp -r "$1" "$4"'
    child = in_mount_namespace(script, str(mount), sys.executable, program, str(saved))
    check_went_on(child, "No space left on device")
    check_full_disk(read_recording(saved))


def test_a_limit_on_file_size(tmp_path: Path) -> None:
    program = (
        START
        + """
import resource
def fill():
    size = max(p.stat().st_size for p in out.glob("*/records/*/*"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, resource.RLIM_INFINITY))
def make_room():
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""
        + FULL_DISK
    )
    check_went_on(run_program(program, str(tmp_path)), "File too large")
    check_full_disk(read_recording(tmp_path))


def test_the_first_write_fails(tmp_path: Path) -> None:
    """The first line of the file is lost with it, and said again."""
    program = (
        START
        + """
import resource
assert start()
record(100)
resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
timeline.set_identity(rank=3)
timeline.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
record(50)
timeline.stop()
print("went on")
"""
    )
    check_went_on(run_program(program, str(tmp_path)), "File too large")
    got = read_recording(tmp_path)
    assert got.lines[0].rank == 3
    assert len(got.phases) == 50
    assert [(d.what, d.count, d.names) for d in got.drops] == [("phase", 100, {"train_step": 100})]
    got.check_counts()


def test_a_read_only_folder(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    program = START + 'assert not start()\nrecord(5)\nprint("went on")'
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && "$2" -c "$3" "$1"'
    child = in_mount_namespace(script, str(mount), sys.executable, program)
    check_went_on(child, "Read-only file system")


def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    program = START + 'out = out / "file"\nassert not start()\nrecord(5)\nprint("went on")'
    check_went_on(run_program(program, str(tmp_path)), "file")


@pytest.mark.parametrize(
    ("source", "environ", "folder", "told"),
    [
        ("timeline", {"SLIME_PROFILER_OUT": "runs/a"}, "runs/a", "environment variable SLIME_PROFILER_OUT"),
        (None, {"SLIME_PROFILER": "./mine.yaml"}, "runs/mine", "the key out in ./mine.yaml"),
        ({"out": "runs/b"}, {}, "runs/b", "the key out given to start()"),
        ({}, {}, "runs", "the key out, by default runs"),
    ],
)
def test_a_folder_that_cannot_be_made_is_named_with_its_setting(
    tmp_path: Path, source: object, environ: dict[str, str], folder: str, told: str
) -> None:
    (tmp_path / "runs").write_text("in the way")
    (tmp_path / "mine.yaml").write_text("out: runs/mine")
    program = START + (
        f"os.chdir(out)\nassert not timeline.start({source!r}, run_id='run')\nrecord(5)\nprint('went on')"
    )
    child = run_program(program, str(tmp_path), **environ)
    check_went_on(child, f"no run can be written to the folder {tmp_path}/{folder}: Not a directory")
    assert child.stderr.endswith(f"; it is set by {told}\n")


def test_threads_that_start_at_once_are_one_recording(tmp_path: Path) -> None:
    program = (
        START
        + """
import threading
from slime_profiler_plugin import record as recording
opened = []
real = recording.open_recorder
entered = threading.Event()
def slow(*given):
    opened.append(threading.current_thread())
    entered.set()
    barrier.wait(30)  # all are inside start() or about to be
    return real(*given)
recording.open_recorder = slow
barrier = threading.Barrier(2)
results = []
threads = [threading.Thread(target=lambda: results.append(start())) for _ in range(8)]
for thread in threads:
    thread.start()
assert entered.wait(30)
pid = os.fork()  # while one of them holds the lock
if pid == 0:
    recording.open_recorder = real
    assert start()
    record(1)
    timeline.stop()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
barrier.wait(30)
for thread in threads:
    thread.join(30)
assert results == [True] * 8, results
assert len(opened) == 1, opened
record(3)
timeline.stop()
print("went on")
"""
    )
    child = run_program(program, str(tmp_path))
    assert (child.returncode, child.stdout, child.stderr) == (0, "went on\n", "")
    counts = sorted(path.read_text().count('"kind":"phase"') for path in record_files(tmp_path))
    assert counts == [1, 3]


def test_a_folder_that_becomes_unusable_and_usable_again(tmp_path: Path) -> None:
    program = (
        START
        + """
assert start()
(out / "run" / "records").write_text("in the way")
record(10)
timeline.flush()
record(10)
timeline.flush()
(out / "run" / "records").unlink()
record(5)
timeline.stop()
print("went on")
"""
    )
    check_went_on(run_program(program, str(tmp_path)), "records")
    got = read_recording(tmp_path)
    assert len(got.phases) == 5
    assert [(d.what, d.reason, d.count) for d in got.drops] == [("phase", "no record file", 20)]
    got.check_counts()


def test_a_folder_that_never_becomes_usable(tmp_path: Path) -> None:
    program = (
        START
        + """
assert start(period_s=0.01)
(out / "run" / "records").write_text("in the way")
for _ in range(20):
    record(10)
    timeline.flush()
timeline.stop()
print("went on")
"""
    )
    check_went_on(run_program(program, str(tmp_path)), "records")


@pytest.mark.parametrize(
    ("switches", "told"),
    [
        ({"SLIME_PROFILER": "no_such_configuration"}, "no_such_configuration"),
        ({"SLIME_COMMUNICATION_TIMELINE": "yes"}, "SLIME_COMMUNICATION_TIMELINE"),
        ({"SLIME_PROFILER": "./missing.yaml"}, "missing.yaml"),
    ],
)
def test_a_broken_switch(switches: dict[str, str], told: str) -> None:
    program = START + 'assert timeline.start() is False\nrecord(5)\nprint("went on")'
    check_went_on(run_program(program, "unused", **switches), told)


def test_without_nvtx(tmp_path: Path) -> None:
    program = (
        START
        + """
sys.modules["nvtx"] = None
assert timeline.start({"out": str(out)}, run_id="run")
record(5)
timeline.stop()
print("went on")
"""
    )
    check_went_on(run_program(program, str(tmp_path)), "nvtx")
    got = read_recording(tmp_path)
    assert len(got.phases) == 5
    assert [(d.what, d.count) for d in got.drops] == [("nvtx", 1)]
    got.check_counts()


def test_a_log_handler_that_raises(tmp_path: Path) -> None:
    program = (
        START
        + """
import logging
class Raises(logging.Handler):
    def emit(self, record):
        raise RuntimeError("theirs")
logging.getLogger("slime_profiler_plugin").addHandler(Raises())
assert not timeline.start("no_such_configuration")
sys.modules["nvtx"] = None
assert timeline.start({"out": str(out)}, run_id="run")
record(5)
timeline.stop()
print("went on")
"""
    )
    child = run_program(program, str(tmp_path))
    assert (child.returncode, child.stdout) == (0, "went on\n"), child.stderr
    assert len(read_recording(tmp_path).phases) == 5


def test_a_writer_that_fails_switches_recording_off(tmp_path: Path) -> None:
    program = (
        START
        + """
from slime_profiler_plugin.record import _writer
def broken():
    raise RuntimeError("a bug of ours")
_writer.read_pair = broken
assert start(period_s=0.01)
record(5)
timeline.flush()
record(5)
timeline.flush()
assert not timeline.on
timeline.stop()
print("went on")
"""
    )
    check_went_on(run_program(program, str(tmp_path)), "a bug of ours")


def test_no_more_threads(tmp_path: Path) -> None:
    program = (
        START
        + """
import threading
def refuse(self):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
assert not start()
record(5)
print("went on")
"""
    )
    check_went_on(run_program(program, str(tmp_path)), "can't start new thread")


def test_off_opens_starts_and_imports_nothing(tmp_path: Path) -> None:
    program = (
        START
        + """
import threading
def files():
    return sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd != "3")
before = files()
assert timeline.start() is False
with timeline.phase("train_step", step=1), timeline.rollout(3):
    timeline.mark("x")
    timeline.begin("y").end(bytes=3)
@timeline.traced("z")
def work():
    yield 1
assert list(work()) == [1]
timeline.set_rollout(1)
timeline.set_identity(role="actor")
assert timeline.source() is None
timeline.flush()
timeline.export_window()
timeline.stop()
assert files() == before
assert threading.active_count() == 1
loaded = {"nvtx", "torch", "ray", "slime_profiler_plugin.record"} & sys.modules.keys()
assert not loaded, loaded
print("went on")
"""
    )
    for switches in ({}, {"SLIME_PROFILER": "off", "SLIME_COMMUNICATION_TIMELINE": "1"}):
        child = run_program(program, str(tmp_path), **switches)
        assert (child.returncode, child.stdout, child.stderr) == (0, "went on\n", "")
    assert not list(tmp_path.iterdir())


def test_off_beats_a_configuration_that_is_given(tmp_path: Path) -> None:
    program = (
        START
        + """
assert start() is False
assert "slime_profiler_plugin.record" not in sys.modules
print("went on")
"""
    )
    child = run_program(program, str(tmp_path), SLIME_PROFILER="off")
    assert (child.returncode, child.stdout, child.stderr) == (0, "went on\n", "")


def test_a_forked_child_writes_nothing_of_its_parent(tmp_path: Path) -> None:
    program = (
        START
        + """
import signal
assert start()
with timeline.phase("outer"):
    record(3)
    pid = os.fork()
    if pid == 0:
        assert not timeline.on
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        record(4)
    else:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        record(5)
if pid == 0:
    sys.exit(0)  # runs atexit, as a child of os.fork may
timeline.stop()
print("went on")
"""
    )
    child = run_program(program, str(tmp_path))
    assert (child.returncode, child.stdout, child.stderr) == (0, "went on\n", "")
    got = read_recording(tmp_path)
    assert len(got.phases) == 3 + 5 + 1
    assert len(got.all(type(got.end))) == 1
    got.check_counts()


def test_a_forked_child_may_record_into_a_file_of_its_own(tmp_path: Path) -> None:
    program = (
        START
        + """
assert start()
record(3)
with timeline.phase("outer"):
    pid = os.fork()
    if pid == 0:
        assert start()
        with timeline.phase("child"):
            pass
        timeline.stop()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
timeline.stop()
print("went on")
"""
    )
    child = run_program(program, str(tmp_path))
    assert (child.returncode, child.stdout, child.stderr) == (0, "went on\n", "")
    files = record_files(tmp_path)
    assert len(files) == 2
    texts = [path.read_text() for path in files]
    (childs,) = [text for text in texts if '"child"' in text]
    assert "train_step" not in childs
    assert '"parent"' not in "".join(line for line in childs.splitlines() if '"phase"' in line)


def test_forks_while_threads_record(tmp_path: Path) -> None:
    """A lock held by another thread at the fork is nobody's in the child."""
    program = (
        START
        + """
import threading
assert start(queue=50, period_s=0.01)
going = True
def work():
    while going:
        record(200)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        record(100)
        timeline.flush()
        timeline.stop()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
going = False
for thread in threads:
    thread.join()
timeline.stop()
print("went on")
"""
    )
    child = run_program(program, str(tmp_path))
    assert (child.returncode, child.stdout) == (0, "went on\n"), child.stderr
    read_recording(tmp_path).check_counts()


def in_mount_namespace(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script where its mounts are its own; skips where that is not allowed."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed")
    for how in (["-rm"], ["-m"]):
        allowed = subprocess.run(
            [unshare, *how, "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
            capture_output=True,
            timeout=60,
            check=False,
        )
        if allowed.returncode == 0:
            return subprocess.run(
                [unshare, *how, "sh", "-c", script, "sh", *arguments],
                env=environment(),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
    pytest.skip("no mount namespace may be made here")
