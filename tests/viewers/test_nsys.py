"""Nsight Systems itself records our phases as NVTX ranges, and its report is read and agrees with our
records."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from nsys_run import profile

from slime_profiler_plugin.merge._clock_check import (
    ClockCheck,
    check_report,
    format_clock_check,
    recorded_phases,
)
from slime_profiler_plugin.read import read_run
from slime_profiler_plugin.read.nsys import NsysPhase, is_nsys_report, nsys_phases

pytestmark = [pytest.mark.timeout(240)]

HERE = Path(__file__).parent
CLOCK_MARK = "slime.clock "
#: Two clocks that are read one after the other by a busy machine.
CLOSE_NS = 2_000_000


@pytest.fixture(scope="module")
def nsys():
    found = shutil.which("nsys")
    if found is None:
        pytest.skip("Nsight Systems is not installed: install the package nsight-systems")
    return found


@pytest.fixture(scope="module")
def database(nsys, tmp_path_factory):
    return profile(nsys, [str(HERE / "nsys_program.py")], lambda: tmp_path_factory.mktemp("nsys"))


def found_phases(database: Path) -> list[NsysPhase]:
    return [phase for phase in nsys_phases(database, "slime") if not phase.name.startswith(CLOCK_MARK)]


def checked(database: Path) -> ClockCheck:
    (folder,) = (database.parent / "runs").iterdir()
    check = check_report(database, read_run([folder]))
    print(format_clock_check(check))  # noqa: T201 - pytest shows it
    return check


def test_phases_are_ranges_of_our_domain_with_the_rollout_as_payload(database):
    phases = found_phases(database)
    step = ["train_step", "forward_backward", "optimizer"]
    assert [phase.name for phase in phases] == step * 3 + ["reward"] * 2
    assert {phase.rollout for phase in phases} == {3}
    assert len({phase.pid for phase in phases}) == 1
    for outer, first, second in zip(*[iter(phases[:9])] * 3, strict=True):
        assert outer.start_unix_ns <= first.start_unix_ns <= first.end_unix_ns
        assert first.end_unix_ns <= second.start_unix_ns <= second.end_unix_ns <= outer.end_unix_ns
    one, other = phases[9:]
    assert other.start_unix_ns < one.end_unix_ns, "the two tasks overlap"


def test_the_report_is_on_our_clock(database):
    check = checked(database)
    assert check[:1] + check[3:6] == (11, 0, 0, 1)
    assert abs(check.median_ns) < CLOSE_NS
    assert abs(check.mark_offset_ns) < CLOSE_NS


def test_nsys_stats_groups_by_phase(nsys, database, tmp_path):
    said = subprocess.run(
        [nsys, "stats", "--report", "nvtxsum", "--format", "csv", str(database)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
    ).stdout
    rows = [line.split(",") for line in said.splitlines() if "slime:" in line]
    instances = {row[-1]: int(row[2]) for row in rows}
    assert instances == {
        "slime:train_step": 3,
        "slime:forward_backward": 3,
        "slime:optimizer": 3,
        "slime:reward": 2,
    }


def test_the_report_itself_is_read_too(database):
    report = database.with_suffix(".nsys-rep")
    assert is_nsys_report(report)
    assert list(nsys_phases(report)) == list(nsys_phases(database))


@pytest.mark.full
@pytest.mark.timeout(400)
def test_every_phase_of_the_demos_processes_is_in_the_report(nsys, tmp_path_factory):
    pytest.importorskip("torch")
    database = profile(
        nsys, [str(HERE / "nsys_demo.py")], lambda: tmp_path_factory.mktemp("demo"), limit_s=120
    )
    (folder,) = (database.parent / "runs").iterdir()
    run = read_run([folder])
    records = list(recorded_phases(run, {each.process.pid for each in run.processes}))
    assert len({phase.pid for phase in records}) == 3
    assert Counter((p.pid, p.name, p.rollout) for p in found_phases(database)) == Counter(
        phase[:3] for phase in records
    )
    check = checked(database)
    assert (check.matched, check.unmatched_in_report, check.unmatched_in_records) == (len(records), 0, 0)
    assert abs(check.median_ns) < CLOSE_NS
    assert check.marks >= 3
    assert abs(check.mark_offset_ns) < CLOSE_NS
