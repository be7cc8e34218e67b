"""Nsight Systems itself records our phases as NVTX ranges; its report is read and agrees with our records."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from nsys_run import profile

from slime_profiler_plugin.merge import MergeOptions, merge_paths
from slime_profiler_plugin.merge._clock_check import (
    ClockCheck,
    RecordedPhase,
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
NAMES = {"train_step": 3, "forward_backward": 3, "optimizer": 3, "reward": 2}
SLICES = "select name, ts, category, extract_arg(arg_set_id, 'args.payload') as payload from slice"


@pytest.fixture(scope="module")
def nsys():
    found = shutil.which("nsys")
    if found is None:
        pytest.skip("Nsight Systems is not installed: install the package nsight-systems")
    return found


@pytest.fixture(scope="module")
def database(nsys, tmp_path_factory):
    return profile(nsys, [str(HERE / "nsys_program.py")], lambda: tmp_path_factory.mktemp("nsys"))


@pytest.fixture(scope="module")
def demo(nsys, tmp_path_factory):
    """The demo's processes, without Ray."""
    pytest.importorskip("torch")
    return profile(nsys, [str(HERE / "nsys_demo.py")], lambda: tmp_path_factory.mktemp("demo"), limit_s=120)


def found_phases(database: Path) -> list[NsysPhase]:
    return [phase for phase in nsys_phases(database, "slime") if not phase.name.startswith(CLOCK_MARK)]


def folder_of(database: Path) -> Path:
    (folder,) = (database.parent / "runs").iterdir()
    return folder


def recorded(database: Path) -> list[RecordedPhase]:
    pids = {phase.pid for phase in found_phases(database)}
    return list(recorded_phases(read_run([folder_of(database)]), pids))


def checked(database: Path) -> ClockCheck:
    check = check_report(database, read_run([folder_of(database)]))
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
    assert instances == {f"slime:{name}": count for name, count in NAMES.items()}


def test_the_report_itself_is_read_too(database):
    report = database.with_suffix(".nsys-rep")
    assert is_nsys_report(report)
    assert list(nsys_phases(report)) == list(nsys_phases(database))


def test_a_report_beside_its_run_loads_clean(database, perfetto, tmp_path):
    """Each phase is there twice: by the report and by the records, within the residual of each other."""
    report = merge_paths([folder_of(database), database], 3, tmp_path / "out.json", None, MergeOptions())
    assert report.exit_code() == 0
    (output,) = report.outputs
    (told,) = [each.clock_check for each in report.inputs if each.clock_check is not None]
    assert told["matched"] == 11
    rows, errors = perfetto.query(Path(output.path), SLICES)
    assert errors == []
    ranges = [row for row in rows if row["category"] == "nvtx"]
    phases = [row for row in rows if row["category"] != "nvtx" and row["name"] in NAMES]
    ours = sorted((row["name"], row["ts"]) for row in phases)
    theirs = sorted((row["name"], row["ts"]) for row in ranges if row["payload"] == 3)
    names = [name for name, _ in theirs]
    assert Counter(names) == NAMES
    assert [name for name, _ in ours] == names
    for (_, recorded_at), (_, seen_at) in zip(ours, theirs, strict=True):
        assert abs(seen_at - recorded_at) <= told["max_abs_ns"] + 1


@pytest.mark.full
@pytest.mark.timeout(400)
def test_every_phase_of_the_demos_processes_is_in_the_report(demo):
    records = recorded(demo)
    assert len({phase.pid for phase in records}) == 3
    assert Counter((p.pid, p.name, p.rollout) for p in found_phases(demo)) == Counter(
        phase[:3] for phase in records
    )
    check = checked(demo)
    assert (check.matched, check.unmatched_in_report, check.unmatched_in_records) == (len(records), 0, 0)
    assert abs(check.median_ns) < CLOSE_NS
    assert check.marks >= 3
    assert abs(check.mark_offset_ns) < CLOSE_NS


@pytest.mark.full
@pytest.mark.timeout(400)
def test_the_demos_report_is_in_every_rollout(demo, perfetto, tmp_path):
    records = recorded(demo)
    report = merge_paths([folder_of(demo), demo], "all", tmp_path / "out", None, MergeOptions())
    assert report.exit_code() == 0
    by_rollout = {output.rollouts[0]: output for output in report.outputs}
    for rollout in (0, 1):
        rows, errors = perfetto.query(Path(by_rollout[rollout].path), SLICES)
        assert errors == []
        seen = Counter(row["name"] for row in rows if row["payload"] == rollout)
        assert seen == Counter(phase.name for phase in records if phase.rollout == rollout)


@pytest.mark.full
@pytest.mark.timeout(400)
def test_the_demos_report_alone_loads_clean(demo, perfetto, tmp_path):
    report = merge_paths([demo], None, tmp_path / "out.json.gz", None, MergeOptions())
    assert report.exit_code() == 0
    rows, errors = perfetto.query(tmp_path / "out.json.gz", SLICES)
    assert errors == []
    ranges = [row for row in rows if row["category"] == "nvtx"]
    phases = [row for row in ranges if not row["name"].startswith(CLOCK_MARK)]
    assert Counter((row["name"], row["payload"]) for row in phases) == Counter(
        (phase.name, phase.rollout) for phase in found_phases(demo)
    )
