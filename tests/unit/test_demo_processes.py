from __future__ import annotations

import os
import subprocess
import sys

import pytest

from slime_profiler_plugin.demo._environment import changed_environment
from slime_profiler_plugin.demo._processes import (
    PeakMemory,
    ProcessId,
    is_alive,
    list_descendants,
    list_users,
    wait_until_gone,
)

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")


@pytest.fixture
def child():
    """A process that ends when its standard input does."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def find(pid: int) -> ProcessId:
    (found,) = [p for p in list_descendants(os.getpid()) if p.pid == pid]
    return found


def test_descendants_are_found_and_told_from_later_ones_with_their_pid(child):
    process = find(child.pid)
    assert is_alive(process)
    assert not is_alive(process._replace(start_ticks=process.start_ticks - 1))
    child.kill()
    child.wait()
    assert not is_alive(process)


def test_processes_are_found_by_the_temporary_folder_they_were_given(tmp_path):
    command = [sys.executable, "-c", "input()"]
    others = {**os.environ, "TMPDIR": f"{tmp_path}/other"}
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}) as ours,
        subprocess.Popen(command, stdin=subprocess.PIPE, env=others) as other,
    ):
        try:
            assert [process.pid for process in list_users(str(tmp_path))] == [ours.pid]
        finally:
            ours.kill()
            other.kill()


def test_waiting_kills_whoever_stays(child):
    wait_until_gone([find(child.pid)], patience_s=0.1)
    assert child.wait() == -9


def test_a_zombie_counts_as_gone(child):
    process = find(child.pid)
    child.stdin.close()
    wait_until_gone([process], patience_s=30)
    assert child.returncode is None, "nobody has reaped it yet"


@pytest.mark.skipif(not os.path.isfile("/proc/self/smaps_rollup"), reason="the kernel does not tell")
def test_peak_memory_counts_this_process_and_its_children(child):
    held = bytearray(os.urandom(50_000_000))
    with PeakMemory() as memory:
        assert find(child.pid)
    assert memory.peak_bytes is not None
    assert memory.peak_bytes > len(held)


def test_the_environment_comes_back(monkeypatch):
    monkeypatch.setenv("SPD_KEPT", "old")
    monkeypatch.setenv("SPD_TAKEN", "there")
    monkeypatch.delenv("SPD_NEW", raising=False)
    with changed_environment({"SPD_KEPT": "new", "SPD_NEW": "1"}, without=("SPD_TAKEN", "SPD_ABSENT")):
        inside = {n: os.environ.get(n) for n in ("SPD_KEPT", "SPD_NEW", "SPD_TAKEN")}
    assert inside == {"SPD_KEPT": "new", "SPD_NEW": "1", "SPD_TAKEN": None}
    after = {n: os.environ.get(n) for n in ("SPD_KEPT", "SPD_NEW", "SPD_TAKEN")}
    assert after == {"SPD_KEPT": "old", "SPD_NEW": None, "SPD_TAKEN": "there"}
