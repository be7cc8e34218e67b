"""SP5xx: files that are looked at together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from small_traces import BASE_NS, event, flow, slice_, write

from slime_profiler_plugin.check import Finding, check_paths


def rank(number: int, size: int = 2) -> dict[str, Any]:
    return {"distributedInfo": {"rank": number, "world_size": size}}


def together(*paths: Path) -> dict[str, Finding]:
    """What several files give together, by code."""
    return {finding.code: finding for finding in check_paths(paths).findings if finding.file is None}


def pair(folder: Path, first: list[dict], second: list[dict], **top: Any) -> dict[str, Finding]:
    return together(
        write(folder / "rank0.json", first, **rank(0), **top), write(folder / "rank1.json", second, **rank(1))
    )


def test_two_ranks_that_share_nothing(tmp_path):
    assert pair(tmp_path, [slice_(pid=1, tid=1)], [slice_(pid=2, tid=1)]) == {}


def test_rank_comes_from_the_metadata_or_the_name_or_is_unknown(tmp_path):
    known = write(tmp_path / "rank-3.host.json", [slice_(pid=1)])
    told = write(tmp_path / "any.json", [slice_(pid=2)], **rank(1, 1))
    unknown = write(tmp_path / "node_12.json", [slice_(pid=3)], schemaVersion=1)
    found = together(known, told, unknown)
    assert found.keys() == {"SP501"}
    assert found["SP501"].files == (str(unknown),)
    assert together(unknown) == {}


def test_ranks_that_are_missing(tmp_path):
    paths = [write(tmp_path / f"{n}.json", [slice_(pid=n)], **rank(n, 4)) for n in (0, 1, 3)]
    found = together(*paths)
    assert found.keys() == {"SP502"}
    assert found["SP502"].count == 1
    assert found["SP502"].message == "3 of 4 ranks are there; missing: 2"
    assert together(paths[0]) == {}  # one file alone is not asked
    many = [write(tmp_path / f"{n}.json", [slice_(pid=n)], **rank(n, 128)) for n in (0, 1)]
    assert together(*many)["SP502"].message.endswith("missing: 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …")


def test_two_files_of_one_rank(tmp_path):
    paths = [write(tmp_path / f"step{n}.json", [slice_(pid=n)], **rank(0, 1)) for n in (1, 2, 3)]
    found = together(*paths)
    assert found.keys() == {"SP503"}
    assert found["SP503"].message == "3 files are of rank 0"


def test_stages_of_an_engine_are_no_two_files_of_one_rank(tmp_path):
    for pid, name in enumerate(["DECODE-run1-TP-0", "EXTEND-run1-TP-0", "DECODE-run2-TP-0"], 1):
        write(tmp_path / f"{name}.trace.json", [slice_(pid=pid)])
    assert together(tmp_path) == {}


def test_pids_and_threads_that_are_shared(tmp_path):
    found = pair(tmp_path, [slice_(pid=7, tid=1), slice_(pid="7", tid=2)], [slice_(pid=7, tid=3)])
    assert found.keys() == {"SP504"}
    assert found["SP504"].message == "1 process is in several files"
    assert found["SP504"].example == "pid 7 in 2 files"
    assert found["SP504"].mended_by == "merge"
    found = pair(tmp_path, [slice_(pid=7, tid=1), slice_(tid=4)], [slice_(pid=7, tid=1), slice_(tid=4)])
    assert {code: finding.count for code, finding in found.items()} == {"SP504": 2, "SP505": 2}


def arrow(pid: int, **fields: Any) -> list[dict[str, Any]]:
    ends = flow("s", 1, **fields), flow("f", 2, **fields)
    return [{**each, "pid": pid} for each in (slice_("A", 0, 9), *ends)]


def test_flow_ids_that_are_shared(tmp_path):
    found = pair(tmp_path, arrow(1), arrow(2))
    assert found.keys() == {"SP506"}
    assert found["SP506"].count == 1
    assert pair(tmp_path, arrow(1), arrow(2, key=2)) == {}
    assert pair(tmp_path, arrow(1), [{**each, "cat": "other"} for each in arrow(2)]) == {}


def test_async_ids_that_are_shared(tmp_path):
    first = [event(letter, ts, id="a", cat="c") for letter, ts in (("b", 1), ("e", 2))]
    assert pair(tmp_path, first, [{**each, "pid": 2} for each in first]).keys() == {"SP507"}
    assert pair(tmp_path, first, [{**each, "pid": 2, "id": "b"} for each in first]) == {}


def test_correlations_that_are_shared(tmp_path):
    kernels = [slice_(cat="kernel", ts=at, args={"correlation": at}) for at in (10, 20, 30)]
    others = [{**each, "pid": 2} for each in kernels[1:]]
    found = pair(tmp_path, kernels, others)
    assert found.keys() == {"SP508"}
    assert found["SP508"].count == 2


def test_bases_that_differ(tmp_path):
    quarter = 7_889_238
    found = pair(
        tmp_path, [slice_(ts=quarter * 10**6)], [slice_(pid=2)], baseTimeNanoseconds=BASE_NS - quarter * 10**9
    )
    assert found.keys() == {"SP509"}
    assert found["SP509"].message == "2 different base times, up to 91.3 days apart"


def test_clocks_that_differ(tmp_path):
    unix = [slice_(ts=BASE_NS // 1000)]
    found = pair(tmp_path, unix, [slice_(pid=2)], baseTimeNanoseconds=None)
    assert found.keys() == {"SP510"}
    assert found["SP510"].message == "files by clock: Unix times: 1, relative to a base: 1"
    other = write(
        tmp_path / "rank1.json", [slice_(pid=2, ts=BASE_NS // 1000)], baseTimeNanoseconds=None, **rank(1)
    )
    assert together(tmp_path / "rank0.json", other) == {}


def test_a_clock_that_is_unknown_beside_others(tmp_path):
    first = write(tmp_path / "rank0.json", [slice_()], **rank(0))
    second = write(tmp_path / "rank1.json", [slice_(pid=2)], baseTimeNanoseconds=None, **rank(1))
    assert {finding.code for finding in check_paths([first, second]).findings} == {"SP207", "SP510"}
