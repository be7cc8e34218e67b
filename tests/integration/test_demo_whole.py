"""Whole demos, each with a Ray cluster of its own: sizes, schedules, faults and interruptions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")

from slime_profiler_plugin.analyze import phase_table
from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.merge import merge_run
from slime_profiler_plugin.read import find_runs, read_run

pytestmark = [pytest.mark.ray, pytest.mark.full, pytest.mark.timeout(300)]


def command(out: Path, *options: str) -> list[str]:
    verb = [sys.executable, "-m", "slime_profiler_plugin.cli", "demo", "--out", str(out)]
    return [*verb, "--rollouts", "2", "--trainers", "1", "--engines", "1", *options]


def environment(**added: str) -> dict[str, str]:
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("SLIME_", "RAY_"))}
    paths = [str(Path(__file__).parents[2]), kept.get("PYTHONPATH", "")]
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **added}


def run_demo(out: Path, *options: str, **added: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(out, *options),
        check=False,
        env=environment(**added),
        capture_output=True,
        text=True,
        timeout=250,
    )


def only_run(out: Path) -> Path:
    (folder,) = find_runs(out, [])
    return folder


@pytest.mark.parametrize(
    ("config", "options", "expected"),
    [
        ("kernels", ("--trainers", "2", "--engines", "2"), {("rollout_000001", "actor-0")}),
        (
            "profiler: {schedule: {skip_first: 1, repeat: 2}, ranks: {stride: 2, offset: 1}}",
            ("--trainers", "4", "--rollouts", "4"),
            {(f"rollout_{r:06d}", f"actor-{rank}") for r in (1, 2) for rank in (1, 3)},
        ),
    ],
)
def test_schedules_choose_the_same_windows_as_in_bare_processes(tmp_path, config, options, expected):
    if config.startswith("profiler"):
        (tmp_path / "own.yaml").write_text(config)
        config = str(tmp_path / "own.yaml")
    done = run_demo(tmp_path / "runs", "--config", config, *options)
    assert done.returncode == 0, done.stderr
    folder = only_run(tmp_path / "runs")
    traces = RunPaths.at(folder).traces
    assert {(p.parent.name, p.name.partition(".")[0]) for p in traces.glob("*/*")} == expected
    table = phase_table(read_run([folder]), 1)
    assert [cells.count for cells in table.rows[0].cells[: int(options[1])]] == [1] * int(options[1])


def test_a_folder_that_cannot_be_made_is_named_before_anything_is_trained(tmp_path):
    """Training would go on without a record; of the demo the record is the whole point."""
    (tmp_path / "file").write_text("in the way")
    done = run_demo(tmp_path / "file" / "runs")
    assert done.returncode == 1
    assert f"nothing can be recorded below {tmp_path}/file/runs" in done.stderr
    assert "rollout 0" not in done.stdout
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize(
    ("options", "told"),
    [(("--config", "tmeline"), "tmeline"), (("--engines", "0"), "--engines")],
)
def test_a_wrong_option_is_named_before_anything_starts(tmp_path, options, told):
    done = run_demo(tmp_path / "runs", *options)
    assert done.returncode != 0
    assert told in done.stderr
    assert "Starting Ray" not in done.stdout
    assert not (tmp_path / "runs").exists()


def test_the_same_run_id_twice_is_two_attempts(tmp_path):
    for _ in range(2):
        done = run_demo(tmp_path, SLIME_PROFILER_RUN_ID="twice")
        assert done.returncode == 0, done.stderr
    run = read_run([tmp_path / "twice"])
    assert run.attempts == [0, 1]
    assert [phase_table(run, 1, attempt).rows for attempt in (0, 1)]
    report = merge_run([tmp_path / "twice"], "all", tmp_path / "merged")
    assert report.exit_code() == 0
    assert {p.ending for p in report.processes} == {"ended"}


@pytest.mark.parametrize(
    ("transport", "arrows"),
    [("ipc", {"bucket_send to engine_receive"}), ("disk", {"shard_write to engine_load"})],
)
def test_weights_reach_whoever_was_started_again(tmp_path, transport, arrows):
    whole = ("--trainers", "2", "--engines", "2", "--rollouts", "3")
    done = run_demo(
        tmp_path, *whole, "--transport", transport, "--restart-engine", "1", "--restart-rank", "0"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("tokens equal in 4 models") == 4
    report = merge_run([only_run(tmp_path)], "all", tmp_path / "merged")
    assert [set(output.arrows_drawn) for output in report.outputs] == [arrows] * 4
    assert [output.arrows for output in report.outputs] == [report.outputs[0].arrows] * 4
    assert [output.arrows_not_drawn for output in report.outputs] == [{}] * 4


@pytest.mark.parametrize("option", ["--restart-engine", "--restart-rank"])
def test_after_a_restart_there_is_a_baseline_before_the_next_difference(tmp_path, option):
    whole = ("--trainers", "2", "--engines", "2", "--rollouts", "3")
    done = run_demo(tmp_path, *whole, "--transport", "disk_delta", option, "0")
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if "proved" in line]
    assert ["bytes whole in" in line for line in told] == [True, False, True, False]
    assert ["as differences in" in line for line in told] == [False, True, False, True]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path, number):
    scratch = Path(tempfile.mkdtemp(prefix="spi", dir="/tmp"))  # Ray's socket paths must fit below it
    process = subprocess.Popen(
        command(tmp_path / "runs", "--rollouts", "1000"),
        env=environment(TMPDIR=str(scratch), PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with process:
        for line in process.stdout:
            if line.startswith("rollout 0"):
                break
        assert list(scratch.glob("spd*"))
        # As a terminal does: everyone in the foreground hears of Ctrl-C.
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        rest = process.stdout.read()
    assert process.returncode != 0, rest
    assert list(scratch.glob("spd*")) == []
    scratch.rmdir()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    run = read_run([only_run(tmp_path / "runs")])
    assert all(p.extents for p in run.processes)
