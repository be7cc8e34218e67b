"""Which rank writes a trace of which rollouts, and what a failing or slow export does to the others.

The demo's trainer function in bare gloo processes: real training, without Ray.
"""

from __future__ import annotations

import functools
import gzip
import json
import logging
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from slime_profiler_plugin import schema
from slime_profiler_plugin.demo import ProcessSetup, Settings, run_bare
from slime_profiler_plugin.layout import TRACE_FILE, RunPaths, parse_rollout_name

RUN_ID = "schedules"
STEPS = 2
SLOW_S = 5.0


def settings(trainers: int, rollouts: int) -> Settings:
    return Settings(
        trainers=trainers, rollouts=rollouts, engines=0, prompts=1, samples_per_prompt=4, steps=STEPS
    )


def run(
    out: Path,
    config: str | dict[str, Any],
    trainers: int,
    rollouts: int,
    prepare: Any = None,
) -> RunPaths:
    """Run the loop; every rank must finish every rollout."""
    environment = {
        "SLIME_PROFILER_OUT": str(out),
        "SLIME_PROFILER_RUN_ID": RUN_ID,
        "SLIME_PROFILER_LAUNCH": "one",
    }
    setup = ProcessSetup(config=config, environment=environment, prepare=prepare)
    reports = run_bare(settings(trainers, rollouts), setup)
    finished = Counter((r.rank, r.train.rollout) for r in reports)
    assert finished == Counter((rank, r) for rank in range(trainers) for r in range(rollouts))
    return RunPaths(out, RUN_ID)


def lines_of(paths: RunPaths) -> dict[int, list[schema.Line | schema.Unknown]]:
    """The record file's lines, by rank."""
    found = {}
    for file in paths.records.rglob("*.jsonl"):
        lines = [schema.decode_line(raw)[0] for raw in file.read_bytes().splitlines()]
        assert isinstance(lines[0], schema.Process)
        assert lines[0].rank is not None
        found[lines[0].rank] = lines
    return found


def traces_of(paths: RunPaths) -> dict[tuple[int, int], dict[str, Any]]:
    """Every file of the trace folder, by rollout of its folder and rank in its name."""
    found = {}
    for file in paths.traces.rglob("*"):
        if file.is_dir():
            continue
        match = TRACE_FILE.fullmatch(file.name)
        assert match, file
        assert (match["role"], match["gz"]) == ("actor", ".gz")
        rollout = parse_rollout_name(file.parent.name)
        assert isinstance(rollout, int)
        key = rollout, int(match["rank"])
        assert key not in found
        found[key] = json.loads(gzip.decompress(file.read_bytes()))
    return found


@pytest.mark.parametrize(
    ("config", "trainers", "rollouts", "expected"),
    [
        pytest.param("kernels", 2, 3, {(1, 0): [1]}, id="kernels"),
        pytest.param(
            {"profiler": {"schedule": {"skip_first": 2, "warmup": 1}, "ranks": "last"}},
            2,
            5,
            {(3, 1): [3]},
            id="skip_first",
        ),
        pytest.param(
            {"profiler": {"schedule": {"wait": 1, "active": 2, "repeat": 2}, "ranks": [0, 1]}},
            2,
            8,
            {(1, 0): [1, 2], (1, 1): [1, 2], (4, 0): [4, 5], (4, 1): [4, 5]},
            id="repeat_2",
        ),
        pytest.param(
            {"profiler": {"schedule": {"repeat": 0}, "ranks": {"stride": 2, "offset": 1}}},
            4,
            2,
            {(0, 1): [0], (0, 3): [0], (1, 1): [1], (1, 3): [1]},
            id="stride",
        ),
    ],
)
def test_the_traces_that_exist(
    config: str | dict[str, Any],
    trainers: int,
    rollouts: int,
    expected: dict[tuple[int, int], list[int]],
    tmp_path: Path,
) -> None:
    paths = run(tmp_path, config, trainers, rollouts)
    processes = {rank: lines[0] for rank, lines in lines_of(paths).items()}
    assert sorted(processes) == list(range(trainers))
    traces = traces_of(paths)
    assert {key: trace["slime_profiler_rollouts"] for key, trace in traces.items()} == expected
    for (_, rank), trace in traces.items():
        about, process = trace["slime_profiler"], processes[rank]
        assert isinstance(process, schema.Process)
        assert (about["run_id"], about["attempt"]) == (RUN_ID, 0)
        assert (about["role"], about["rank"], about["world_size"]) == ("actor", rank, trainers)
        for name in ("pid", "incarnation", "host", "clock_domain"):
            assert about[name] == getattr(process, name)
        assert trace["distributedInfo"]["rank"] == rank
        assert trace["slime_profiler_window"]["cut"] is None
        names = Counter(e["name"] for e in trace["traceEvents"] if e.get("cat") == "user_annotation")
        covered = trace["slime_profiler_rollouts"]
        assert {n for n in names if n.startswith("ProfilerStep#")} == {f"ProfilerStep#{r}" for r in covered}
        for phase in ("train_step", "forward_backward", "grad_sync", "optimizer"):
            assert names[phase] == STEPS * len(covered)


def test_the_export_is_a_phase_of_the_rollout_it_belongs_to(tmp_path: Path) -> None:
    paths = run(tmp_path, {"profiler": {"schedule": {"skip_first": 1}, "ranks": "all"}}, 2, 3)
    for lines in lines_of(paths).values():
        exports = [x for x in lines if isinstance(x, schema.Phase) and x.name == "profiler_export"]
        assert [x.rollout for x in exports] == [1]


def test_windows_that_grow_too_large_are_cut_at_the_end_of_a_phase(tmp_path: Path) -> None:
    profiler = {"schedule": {"repeat": 0}, "ranks": [0], "max_bytes": 1}
    paths = run(tmp_path, {"profiler": profiler}, 1, 3)
    traces = traces_of(paths)
    assert sorted(traces) == [(0, 0), (1, 0), (2, 0)]
    # The first window may end before its size is looked at.
    for rollout in (1, 2):
        trace = traces[rollout, 0]
        assert "max_bytes is 0.0 MB" in trace["slime_profiler_window"]["cut"]
        names = Counter(e["name"] for e in trace["traceEvents"] if e.get("cat") == "user_annotation")
        assert names == {f"ProfilerStep#{rollout}": 1, "train_wait": 1}
    assert losses(lines_of(paths)[0])["window cut short at max_bytes"] >= 2


def log_warnings(path: str) -> None:
    handler = logging.FileHandler(path)
    handler.setLevel(logging.WARNING)
    logging.getLogger("slime_profiler_plugin").addHandler(handler)


def failing_export(folder: str, role: str, rank: int) -> None:
    """On rank 1 the disk is full when torch exports."""
    log_warnings(f"{folder}/{role}-{rank}.log")
    if rank != 1:
        return
    import torch

    def export(*_: object) -> None:
        raise OSError(28, "No space left on device")

    torch.profiler.profile.export_chrome_trace = export  # type: ignore[assignment]


def slow_export(folder: str, role: str, rank: int) -> None:
    """On rank 1 the export takes 5 s."""
    log_warnings(f"{folder}/{role}-{rank}.log")
    if rank != 1:
        return
    import torch

    export = torch.profiler.profile.export_chrome_trace

    def slowly(self: torch.profiler.profile, path: str) -> None:
        time.sleep(SLOW_S)  # what is simulated, not waited for
        export(self, path)

    torch.profiler.profile.export_chrome_trace = slowly  # type: ignore[assignment,method-assign]


def losses(lines: list[schema.Line | schema.Unknown]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in lines:
        if isinstance(line, schema.Drop):
            assert line.what == "trace"
            counts[line.reason] += line.count
    return counts


EVERY_ROLLOUT = {"schedule": {"repeat": 0}, "ranks": "all", "max_export_s": 4}


def test_a_failed_export_on_one_rank(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    prepare = functools.partial(failing_export, str(logs))
    paths = run(tmp_path, {"profiler": EVERY_ROLLOUT}, 2, 3, prepare)
    assert sorted(traces_of(paths)) == [(0, 0), (1, 0), (2, 0)]
    lines = lines_of(paths)
    assert losses(lines[0]) == {}
    assert losses(lines[1]) == {"window not written: No space left on device": 3}
    assert (logs / "actor-0.log").read_text() == ""
    (warning,) = (logs / "actor-1.log").read_text().splitlines()
    assert "No space left on device" in warning


def test_a_slow_export_on_one_rank(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    prepare = functools.partial(slow_export, str(logs))
    paths = run(tmp_path, {"profiler": EVERY_ROLLOUT}, 2, 3, prepare)
    # It was written, late; from then on the rank records no more windows.
    assert sorted(traces_of(paths)) == [(0, 0), (0, 1), (1, 0), (2, 0)]
    lines = lines_of(paths)
    assert losses(lines[0]) == {}
    ((reason, count),) = losses(lines[1]).items()
    assert count == 1
    assert reason.endswith("max_export_s is 4: no more windows in this process")
    assert (logs / "actor-0.log").read_text() == ""
    (warning,) = (logs / "actor-1.log").read_text().splitlines()
    assert "no more windows in this process" in warning
    (export,) = [x for x in lines[1] if isinstance(x, schema.Phase) and x.name == "profiler_export"]
    assert export.dur_ns >= SLOW_S * 1e9
