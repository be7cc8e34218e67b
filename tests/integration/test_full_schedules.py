"""Profiler windows through whole demos: which exist, what is in them, what a merged file makes of them."""

from __future__ import annotations

import gzip
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import whole_demo
from merged_demo import (
    Inputs,
    Seen,
    ask,
    check_arrows,
    check_conservation,
    complete_pairs,
    load,
    own_arrows,
    rank_of,
    read_inputs,
)
from perfetto import Perfetto

from slime_profiler_plugin.demo import Settings
from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.merge import merge_run

pytest.importorskip("torch")
pytest.importorskip("ray")

pytestmark = [pytest.mark.full, pytest.mark.ray, pytest.mark.timeout(600)]
SETTINGS = Settings()
#: For nine in ten: where many processes share few cores, one may lose its core between two clock reads.
MOST_NS = 100_000

#: The first would end after the window; the second is a span that nests in nothing.
WITHOUT_ANNOTATION = ("profiler_export", "bucket_ready")


class Shape(NamedTuple):
    """A demo, and the windows it must leave: the rollouts of each, by (first rollout, rank)."""

    config: str | dict[str, Any]
    rollouts: int
    trainers: int
    engines: int
    windows: dict[tuple[int, int], list[int]]


SHAPES = {
    "kernels": Shape("kernels", 4, 2, 1, {(1, 0): [1]}),
    "skip_first": Shape(
        {"profiler": {"schedule": {"skip_first": 2, "warmup": 1}, "ranks": "last"}}, 5, 2, 1, {(3, 1): [3]}
    ),
    "repeat_2": Shape(
        {"profiler": {"schedule": {"active": 2, "repeat": 2}, "ranks": [0, 1]}},
        5,
        2,
        1,
        {(0, 0): [0, 1], (0, 1): [0, 1], (2, 0): [2, 3], (2, 1): [2, 3]},
    ),
    "stride": Shape(
        {"profiler": {"schedule": {"wait": 1, "repeat": 0}, "ranks": {"stride": 2, "offset": 1}}},
        5,
        2,
        2,
        {(1, 1): [1], (3, 1): [3]},
    ),
    "everything": Shape("everything", 5, 3, 3, {(1, 0): [1], (1, 1): [1], (1, 2): [1]}),
    "one_of_each": Shape("kernels", 3, 1, 1, {(1, 0): [1]}),
}


class Done(NamedTuple):
    """A demo that has run."""

    shape: Shape
    told: dict[str, Any]
    paths: RunPaths
    inputs: Inputs

    @property
    def buckets(self) -> int:
        """Per sync."""
        (buckets,) = {sum(report["buckets"] for report in reports) for reports in self.told["syncs"]}
        return int(buckets)

    def profiled(self, rollout: int | str) -> list[tuple[int, int]]:
        """The windows that hold something of a rollout."""
        return [key for key, covered in self.shape.windows.items() if rollout in covered]


@pytest.fixture(scope="module", params=list(SHAPES))
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Done:
    shape = SHAPES[request.param]
    out = tmp_path_factory.mktemp(request.param)
    told = whole_demo.run(
        out, shape.config, rollouts=shape.rollouts, trainers=shape.trainers, engines=shape.engines
    )
    assert "failed" not in told, told
    assert told["exit_code"] == 0
    folder = Path(told["run_folder"])
    return Done(shape, told, RunPaths.at(folder), read_inputs(folder))


@pytest.fixture(scope="module")
def merged(done: Done) -> dict[int | str, Path]:
    """The merged file of each rollout."""
    rollouts: list[int | str] = ["initial", *range(done.shape.rollouts)]
    names = {r: "initial" if r == "initial" else f"rollout_{r:06d}" for r in rollouts}
    files = {r: done.paths.merged / f"{name}.trace.json.gz" for r, name in names.items()}
    assert sorted(done.paths.merged.iterdir()) == sorted(files.values())
    return files


@pytest.fixture(scope="module")
def seen(merged: dict[int | str, Path], perfetto: Perfetto) -> dict[int | str, Seen]:
    return {rollout: ask(perfetto, path) for rollout, path in merged.items()}


def test_the_windows_that_exist_and_the_ids_in_them(done: Done) -> None:
    processes = {
        line["rank"]: line
        for line in done.inputs.lines
        if line["kind"] == "process" and line["role"] == "actor"
    }
    assert sorted(processes) == list(range(done.shape.trainers))
    covered = {key: window["slime_profiler_rollouts"] for key, window in done.inputs.windows.items()}
    assert covered == done.shape.windows
    for (_, rank), window in done.inputs.windows.items():
        about = window["slime_profiler"]
        assert (about["run_id"], about["attempt"]) == (done.paths.root.name, 0)
        assert (about["role"], about["rank"], about["world_size"]) == ("actor", rank, done.shape.trainers)
        for name in ("pid", "incarnation", "host", "clock_domain"):
            assert about[name] == processes[rank][name]
        assert window["slime_profiler_window"]["cut"] is None
        steps = [
            event["name"]
            for event in window["traceEvents"]
            if event.get("cat") == "user_annotation" and event["name"].startswith("ProfilerStep#")
        ]
        assert steps == [f"ProfilerStep#{r}" for r in window["slime_profiler_rollouts"]]


def test_nothing_was_lost_by_any_recorder(done: Done) -> None:
    assert [line for line in done.inputs.lines if line["kind"] == "drop"] == []
    processes = 2 + done.shape.trainers + done.shape.engines
    assert sum(line["kind"] == "end" for line in done.inputs.lines) == processes


def test_merged_files_load_without_an_error(seen: dict[int | str, Seen]) -> None:
    assert {rollout: each.errors for rollout, each in seen.items()} == {rollout: [] for rollout in seen}


def test_events_are_conserved(done: Done, merged: dict[int | str, Path]) -> None:
    for path in merged.values():
        check_conservation(load(path), done.inputs)


def test_arrows(done: Done, merged: dict[int | str, Path], seen: dict[int | str, Seen]) -> None:
    for rollout, each in seen.items():
        check_arrows(each, done.buckets, done.shape.engines)
        file = load(merged[rollout])
        assert own_arrows(file["slime_profiler_conservation"]) == done.buckets * done.shape.engines
        assert file["slime_profiler_conservation"]["arrows_not_drawn"] == {}
        assert len(each.other_arrows()) == complete_pairs(file["traceEvents"])
        assert each.other_arrows() or not done.profiled(rollout)
    # Ranks change to the next rollout one after the other, and a file holds all that touches its rollout:
    # an operator at the border stands in two.
    assert sum(len(each.other_arrows()) for each in seen.values()) >= done.inputs.pairs()


def test_each_window_stands_under_its_rank(done: Done, seen: dict[int | str, Seen]) -> None:
    for rollout, each in seen.items():
        operators = defaultdict(list)
        for row in each.slices.values():
            if (row["process"] or "").endswith(" · cpu"):
                operators[rank_of(row)].append(row)
        profiled = {("actor", rank) for _, rank in done.profiled(rollout)}
        assert profiled <= operators.keys()
        # What reaches over the border from the rollout before or after is whole in both files.
        for rank in operators.keys() - profiled:
            assert isinstance(rollout, int)
            beside = (*done.profiled(rollout - 1), *done.profiled(rollout + 1))
            assert rank in {("actor", r) for _, r in beside}
            begin, end = extent(each, rank)
            assert all(row["ts"] < begin or row["ts"] > end for row in operators[rank])


def extent(seen: Seen, rank: tuple[str, int] | None) -> tuple[int, int]:
    """From the start of the rank's first phase to the end of its last."""
    own = [row for row in seen.slices.values() if row["phase_id"] is not None and rank_of(row) == rank]
    return min(row["ts"] for row in own), max(row["ts"] + row["dur"] for row in own)


def test_annotations_lie_on_their_phases(done: Done, seen: dict[int | str, Seen]) -> None:
    for rollout, each in seen.items():
        for _, rank in done.profiled(rollout):
            check_annotations(each, rank, done.paths.root.name)


def check_annotations(seen: Seen, rank: int, run_id: str) -> None:
    own = [row for row in seen.slices.values() if rank_of(row) == ("actor", rank)]
    phases: dict[str, list[dict[str, Any]]] = defaultdict(list)
    annotations: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in own:
        if row["phase_id"] is not None:
            assert row["process"].endswith(" · phases")
            phases[row["name"]].append(row)
    for name in WITHOUT_ANNOTATION:
        phases.pop(name, None)
    begin, end = extent(seen, ("actor", rank))
    for row in own:
        # The next rollout's phases may have begun while another rank was not done with this one.
        inside = row["ts"] < end and row["ts"] + row["dur"] > begin
        if row["cat"] == "user_annotation" and row["name"] in phases and inside:
            assert row["process"].endswith(" · cpu")
            assert (row["run_id"], row["attempt"]) == (run_id, 0)
            annotations[row["name"]].append(row)
    assert {name: len(rows) for name, rows in annotations.items()} == {
        name: len(rows) for name, rows in phases.items()
    }
    assert len(phases["optimizer"]) == SETTINGS.steps
    differences = sorted(
        (abs(difference), name)
        for name, rows in phases.items()
        for ours, theirs in zip(rows, annotations[name], strict=True)
        for difference in (theirs["ts"] - ours["ts"], theirs["ts"] + theirs["dur"] - ours["ts"] - ours["dur"])
    )
    outliers = [each for each in differences if each[0] >= MOST_NS]
    assert differences[len(differences) * 9 // 10][0] < MOST_NS, outliers


def test_a_window_over_two_rollouts_merges_into_one_file(
    done: Done, perfetto: Perfetto, tmp_path: Path
) -> None:
    last = done.shape.rollouts
    report = merge_run([done.paths.root], (0, last), tmp_path)
    (output,) = report.outputs
    assert output.rollouts == list(range(last))
    each = ask(perfetto, Path(output.path))
    assert each.errors == []
    check_arrows(each, done.buckets * last, done.shape.engines)
    assert len(each.other_arrows()) == done.inputs.pairs()
    whole = load(Path(output.path))
    check_conservation(whole, done.inputs)
    written = {
        source["source"]: source["read"] - source["described"] - source["written"]
        for source in whole["slime_profiler_conservation"]["sources"]
        if ".pt.trace.json" in source["source"]
    }
    assert set(written.values()) == {0}, "an event of a window is in no file"


def test_copies_that_each_hold_a_part_merge_to_the_same_events(
    done: Done, merged: dict[int | str, Path], tmp_path: Path
) -> None:
    name = done.paths.root.name
    copies = [tmp_path / "node-0" / name, tmp_path / "node-1" / name]
    for copy in copies:
        shutil.copytree(done.paths.root, copy, ignore=shutil.ignore_patterns("records", "traces", "merged"))
    files = sorted(p for kind in ("records", "traces") for p in (done.paths.root / kind).rglob("*.json*"))
    for number, file in enumerate(files):
        target = copies[number % 2] / file.relative_to(done.paths.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    for order, folders in enumerate((copies, copies[::-1])):
        out = tmp_path / f"out-{order}"
        report = merge_run(folders, "all", out)
        assert report.exit_code() == 0
        assert (report.damage, report.warnings, report.ignored) == ([], [], [])
        for path in merged.values():
            # Equal inputs give equal files, wherever they lie.
            assert gzip.decompress((out / path.name).read_bytes()) == gzip.decompress(path.read_bytes())
