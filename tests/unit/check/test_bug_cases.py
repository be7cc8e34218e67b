"""Publicly reported kinds of faults, and real files that have none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slime_profiler_plugin.check import check_paths

SHARED = Path(os.environ.get("SLIME_PROFILER_SHARED", Path(__file__).resolve().parents[3].parent / "shared"))
CASES = {
    "01-flow-id-collision": {"SP506", "SP508"},
    "02-gpu-pid-shared": {"SP504", "SP505"},
    "03-metadata-not-remapped": {"SP504", "SP505"},
    "04-same-pid-containers": {"SP504", "SP505"},
    "05-prefix-and-old-merge-in-dir": {"SP504"},
    "06-missing-rank": {"SP502"},
    "08-two-ranks-one-path": {"SP403"},
    "09-control-char-in-name": {"SP407"},
    "11-non-utf8-name": {"SP408"},
    "12-array-and-string-pids": {"SP105", "SP207"},
    "15-zero-ts-kernels": {"SP202"},
    "16-absolute-and-based-mix": {"SP510"},
    "20-no-distributed-info": {"SP501"},
    "21-duplicate-rank": {"SP503"},
    "22-overlapping-kernels": {"SP101"},
    "25-reused-flow-id": {"SP301"},
    "27-ray-timeline-strings": {"SP105", "SP206"},
    "32-truncated-gzip": {"SP402"},
    "34-event-without-pid": {"SP104", "SP109", "SP411"},
}
#: What files that torch.profiler wrote itself have, besides slices that cross.
OF_TORCH = {"SP101", "SP105", "SP108", "SP110", "SP111", "SP302", "SP303", "SP602"}


def codes(*paths: Path) -> set[str]:
    return {finding.code for finding in check_paths(paths).findings}


@pytest.mark.parametrize("case", CASES)
def test_case_gives_the_code_of_its_fault(case):
    folder = SHARED / "bugs" / case
    if not folder.is_dir():
        pytest.skip("no shared cases")
    assert CASES[case] <= codes(folder)


def test_base_behind_the_events_is_no_fault():
    folder = SHARED / "bugs" / "18-base-after-events"
    if not folder.is_dir():
        pytest.skip("no shared cases")
    assert codes(folder) == set()


@pytest.mark.parametrize(
    "name",
    [
        "own_gen/torch2141_gloo4_full",
        "own_gen/torch2141_gloo4_samepid",
        "own_gen/torch231_gloo4_full",
        "param_dlrm_8rank",
        "kineto",
    ],
)
def test_files_of_torch_have_no_other_faults(name):
    folder = SHARED / "traces" / name
    if not folder.is_dir():
        pytest.skip("no shared traces")
    for path in sorted(folder.iterdir()):
        assert codes(path) <= OF_TORCH, path.name


def test_sets_of_ranks_share_what_they_are_known_to_share():
    """params of the corpus: 1,119 of 2,794 arrows are in more than one rank."""
    folder = SHARED / "traces" / "param_dlrm_8rank"
    if not folder.is_dir():
        pytest.skip("no shared traces")
    found = {finding.code: finding for finding in check_paths([folder]).findings if finding.file is None}
    assert found["SP506"].count == 1119
    assert {"SP502", "SP503", "SP509", "SP510"}.isdisjoint(found)
