"""Faults in the processes of whole demos: training goes on as if there were no profiler."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import faulty_actors
import pytest
import whole_demo
from click.testing import CliRunner
from demo_records import of_role

from slime_profiler_plugin.cli import main
from slime_profiler_plugin.read import ProcessRecords, Run, read_run

pytest.importorskip("torch")
pytest.importorskip("ray")

pytestmark = [pytest.mark.full, pytest.mark.ray, pytest.mark.timeout(600)]
ROLLOUTS = 3
PERIOD_S = 0.2
RECORDS: dict[str, Any] = {"records": {"period_s": PERIOD_S}}
WINDOWS: dict[str, Any] = {
    **RECORDS,
    "profiler": {"schedule": {"repeat": 0}, "ranks": "all", "max_export_s": 4},
}
ACTORS = ["actor-0", "actor-1", "engine-0", "rollout_manager-0"]


class Demo(NamedTuple):
    """A demo that has run to its end."""

    out: Path
    told: dict[str, Any]

    @property
    def run(self) -> Run:
        return read_run([self.told["run_folder"]])

    @property
    def warned(self) -> dict[str, list[str]]:
        return whole_demo.warnings_of(self.out)


def run_demo(out: Path, config: dict[str, Any], fault: str | None = None, **environment: str) -> Demo:
    told = whole_demo.run(out, config, fault, environment, rollouts=ROLLOUTS)
    assert "failed" not in told, told
    return Demo(out, told)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Losses, rewards, logits and tokens of the same demo when nothing fails."""
    demo = run_demo(tmp_path_factory.mktemp("without"), WINDOWS)
    assert demo.told["exit_code"] == 0
    assert demo.warned == {actor: [] for actor in ACTORS}
    assert all(records.drops == [] for records in demo.run.processes)
    training: list[dict[str, Any]] = demo.told["training"]
    assert [each["rollout"] for each in training] == ["initial", *range(ROLLOUTS)]
    assert all(each["losses"] for each in training[1:])
    return training


def trainer(run: Run, rank: int) -> ProcessRecords:
    (records,) = [p for p in of_role(run, "actor") if p.process.rank == rank]
    return records


def dropped(records: ProcessRecords) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for drop in records.drops:
        counts[drop.what, drop.reason] += drop.count
    return counts


def check_only(demo: Demo, actors: dict[str, str]) -> None:
    """Each of `actors` warned once, of this; nobody else did."""
    warned = demo.warned
    assert sorted(warned) == ACTORS
    for actor, lines in warned.items():
        assert len(lines) == (actor in actors), (actor, lines)
        assert all(actors[actor] in line for line in lines), (actor, lines)


def check_whole(records: ProcessRecords) -> None:
    """Nothing dropped, an end, and every step's phases."""
    assert records.drops == []
    check_steps(records)


def check_steps(records: ProcessRecords) -> None:
    assert records.end is not None
    optimizer = Counter((p.rollout, p.step) for p in records.phases() if p.name == "optimizer")
    assert optimizer == {(rollout, step): 1 for rollout in range(ROLLOUTS) for step in range(2)}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("full_tmpfs", "No space left on device"), ("limited_file_size", "File too large")],
)
def test_a_full_disk(fault: str, reason: str, training: list[dict[str, Any]], tmp_path: Path) -> None:
    if fault == "full_tmpfs" and not faulty_actors.can_mount():
        pytest.skip("no mount namespace can be made here; the other case stands for it")
    demo = run_demo(tmp_path, RECORDS, fault)
    assert demo.told["training"] == training
    check_only(demo, {"actor-1": reason})
    folder = Path(demo.told["run_folder"])
    rescued = tmp_path / "rescued" / folder.name
    run = read_run([folder, rescued] if fault == "full_tmpfs" else [folder])
    check_whole(trainer(run, 0))
    records = trainer(run, 1)
    # Before the last rollout there was no room; then what was lost before could be told.
    lost = dropped(records)
    assert {key[1] for key in lost} == {f"write failed: {reason}"}
    assert records.damage == []
    assert records.end is not None
    names = Counter(p.name for p in records.phases())
    for drop in records.drops:
        names.update(drop.names)
    whole = Counter(p.name for p in trainer(run, 0).phases())
    for name in ("optimizer", "grad_sync", "forward", "backward", "train_wait", "weight_sync", "barrier"):
        assert names[name] == whole[name], name
    assert records.end.counts["dropped"] == lost.total()


@pytest.mark.parametrize("how", ["read_only_mount", "parent_is_a_file"])
def test_a_folder_that_cannot_be_written(how: str, training: list[dict[str, Any]], tmp_path: Path) -> None:
    if how == "read_only_mount":
        if not faulty_actors.can_mount():
            pytest.skip("no mount namespace can be made here; the other case stands for it")
        demo = run_demo(tmp_path, WINDOWS, how)
        check_only(demo, {"actor-1": "Read-only file system"})
        check_whole(trainer(demo.run, 0))
        assert [p.process.rank for p in of_role(demo.run, "actor")] == [0]
    else:
        file = tmp_path / "file"
        file.write_text("not a folder")
        demo = run_demo(tmp_path, WINDOWS, SLIME_PROFILER_OUT=str(file / "runs"))
        check_only(demo, dict.fromkeys(ACTORS, "Not a directory"))
        assert [p.process.role for p in demo.run.processes] == ["driver"]
        assert file.read_text() == "not a folder"
    assert demo.told["training"] == training


def test_a_broken_configuration_in_the_actors(training: list[dict[str, Any]], tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("records: {period_s: soon}\n")
    demo = run_demo(tmp_path, WINDOWS, SLIME_PROFILER=str(broken))
    assert demo.told["training"] == training
    check_only(demo, dict.fromkeys(ACTORS, "records.period_s: 'soon' is not allowed"))
    assert [p.process.role for p in demo.run.processes] == ["driver"]


def test_missing_nvtx(training: list[dict[str, Any]], tmp_path: Path) -> None:
    demo = run_demo(tmp_path, WINDOWS, "missing_nvtx")
    assert demo.told["training"] == training
    check_only(demo, dict.fromkeys(ACTORS, "nvtx is off from now on"))
    for records in demo.run.processes:
        whats = [(drop.what, drop.count) for drop in records.drops]
        assert whats == ([] if records.process.role == "driver" else [("nvtx", 1)])
        assert records.end is not None
    assert len(demo.run.windows) == 2 * ROLLOUTS


def test_hooks_that_raise(training: list[dict[str, Any]], tmp_path: Path) -> None:
    demo = run_demo(tmp_path, WINDOWS, "raising_hooks")
    assert demo.told["training"] == training
    check_only(demo, {"actor-0": "nvtx is off from now on", "actor-1": "record_function is off from now on"})
    for rank, part in enumerate(("nvtx", "record_function")):
        records = trainer(demo.run, rank)
        assert dropped(records) == {(part, "RuntimeError: this hook always fails"): 1}
        check_steps(records)
    assert len(demo.run.windows) == 2 * ROLLOUTS


def test_a_failed_export(training: list[dict[str, Any]], tmp_path: Path) -> None:
    demo = run_demo(tmp_path, WINDOWS, "failed_export")
    assert demo.told["training"] == training
    check_only(demo, {"actor-1": "No space left on device"})
    assert sorted((w.rollout, w.rank) for w in demo.run.windows) == [(r, 0) for r in range(ROLLOUTS)]
    check_whole(trainer(demo.run, 0))
    records = trainer(demo.run, 1)
    assert dropped(records) == {("trace", "window not written: No space left on device"): ROLLOUTS}
    check_steps(records)


def test_a_slow_export(training: list[dict[str, Any]], tmp_path: Path) -> None:
    demo = run_demo(tmp_path, WINDOWS, "slow_export")
    assert demo.told["training"] == training
    check_only(demo, {"actor-1": "no more windows in this process"})
    # It was written, late; from then on the rank records no more windows.
    expected = [(0, 0), (0, 1), *((rollout, 0) for rollout in range(1, ROLLOUTS))]
    assert sorted((w.rollout, w.rank) for w in demo.run.windows) == expected
    check_whole(trainer(demo.run, 0))
    records = trainer(demo.run, 1)
    ((what, _reason),) = dropped(records)
    assert what == "trace"
    check_steps(records)
    (export,) = [p for p in records.phases() if p.name == "profiler_export"]
    assert export.dur_ns >= faulty_actors.SLOW_S * 1e9


def test_a_trainer_killed_inside_a_phase(tmp_path: Path) -> None:
    told = whole_demo.run(tmp_path, RECORDS, "killed_in_a_phase", rollouts=ROLLOUTS)
    assert "an actor failed" in told["failed"]
    (folder,) = (tmp_path / "runs").iterdir()
    done = CliRunner().invoke(main, ["merge", str(folder), "--rollout", "1"], catch_exceptions=False)
    assert "actor rank 1 · dp1: ended early, in open phase data_preprocess" in done.output
    merged = json.loads(gzip.decompress((folder / "merged" / "rollout_000001.trace.json.gz").read_bytes()))
    names = {e["pid"]: e["args"]["name"] for e in merged["traceEvents"] if e["name"] == "process_name"}
    still = [e for e in merged["traceEvents"] if e.get("args", {}).get("open")]
    assert [(names[e["pid"]], e["name"]) for e in still] == [
        ("actor rank 1 · dp1 · ended early · phases", "data_preprocess (open)")
    ]
    # The other rank's collective ended, with an error, and so did its record.
    survivor = trainer(read_run([folder]), 0)
    assert survivor.end is not None
    assert done.exit_code == 0
