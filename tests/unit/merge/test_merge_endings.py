"""How processes ended."""

import pytest

from slime_profiler_plugin.merge import merge_run
from slime_profiler_plugin.testing import MS, ProcessFile

S = 1000 * MS


def endings(tmp_path, *processes):
    for process in processes:
        process.phase("train_step", 1, 100, rollout=0)
        process.write(tmp_path)
    return {p.pid: p.ending for p in merge_run([tmp_path / "r"], 0).processes}


def worker(last_ns, *, pid=2, **fields):
    process = ProcessFile("r", pid=pid, role="actor", rank=pid, **fields)
    process.clock(last_ns)
    return process


def driver(end_ns):
    process = ProcessFile("r", pid=1, role="driver")
    process.end(end_ns)
    return process


@pytest.mark.parametrize(
    ("last", "ending"),
    [
        (58 * S, "ended with the job"),  # two of its periods before the driver's end
        (61 * S, "ended with the job"),
        (58 * S - 1, "ended early"),
        (0, "ended early"),
    ],
)
def test_process_without_an_end_is_measured_by_the_drivers_end(tmp_path, last, ending):
    assert endings(tmp_path, driver(60 * S), worker(last)) == {1: "ended", 2: ending}


def test_period_is_the_processs_own(tmp_path):
    found = endings(
        tmp_path, driver(60 * S), worker(51 * S, period_s=5.0), worker(49 * S, pid=3, period_s=5.0)
    )
    assert found == {1: "ended", 2: "ended with the job", 3: "ended early"}


def test_other_hosts_clock_is_brought_onto_the_drivers_first(tmp_path):
    # Its monotonic clock is 1000 s ahead.
    far = worker(1059 * S, host="h2", clock_domain="boot2", epoch_ns=1_794_999_000 * 10**9, start_ns=1000 * S)
    assert endings(tmp_path, driver(60 * S), far)[2] == "ended with the job"


def test_without_a_driver_who_fell_silent_before_the_others_ended_early(tmp_path):
    found = endings(tmp_path, worker(60 * S), worker(59 * S, pid=3), worker(57 * S, pid=4))
    assert found == {2: "no end", 3: "no end", 4: "ended early"}


def test_driver_that_was_killed_itself_ends_nobody(tmp_path):
    silent = ProcessFile("r", pid=1, role="driver")
    silent.clock(60 * S)
    assert endings(tmp_path, silent, worker(60 * S)) == {1: "no end", 2: "no end"}
