"""SP6xx: each rule, what it says, and what is just not it."""

from __future__ import annotations

from small_traces import findings, flow, slice_


def launch(ts: float, correlation: int = 9, **fields: object) -> dict:
    args = {"correlation": correlation}
    return slice_("launch", ts, 2, cat="cuda_runtime", args=args, **fields)


def kernel(ts: float, dur: float = 2, correlation: int = 9, name: str = "gemm", **fields: object) -> dict:
    args = {"stream": 7, "correlation": correlation}
    return slice_(name, ts, dur, pid=0, tid=7, cat="kernel", args=args, **fields)


def test_kernel_before_its_launch(tmp_path):
    assert findings(tmp_path, launch(10), kernel(10), kernel(13)) == {}
    found = findings(
        tmp_path, launch(10), kernel(8.5, 1), launch(20, 10), kernel(19, 0.5, 10), kernel(1, 1, 11)
    )
    assert found.keys() == {"SP601"}
    assert found["SP601"].message == "2 device events begin before their launch, by up to 1.500 us"
    assert found["SP601"].example == '"gemm" at 8.500 us on pid 0 tid 7'


def test_arrow_that_leans_back_is_told_beside_the_kernel(tmp_path):
    arrow = flow("s", 10), {**flow("f", 8.5), "pid": 0, "tid": 7}
    assert findings(tmp_path, launch(10), kernel(8.5), *arrow).keys() == {"SP306", "SP601"}


def test_a_record_that_failed_is_not_before_its_launch(tmp_path):
    hour = 3_600_000_000
    assert findings(tmp_path, launch(2 * hour), kernel(0, 0)).keys() == {"SP202"}


def host(name: str, ts: float, dur: float, **fields: object) -> dict:
    return slice_(name, ts, dur, cat="user_annotation", **fields)


def twin(name: str, ts: float, dur: float) -> dict:
    return slice_(name, ts, dur, pid=0, tid=7, cat="gpu_user_annotation")


def test_annotation_that_launched_has_a_twin(tmp_path):
    both = [host("step", 0, 20), launch(5), kernel(8), twin("step", 8, 2)]
    assert findings(tmp_path, *both) == {}
    found = findings(tmp_path, *both, host("lost", 30, 10), launch(35, 10), kernel(38, 2, 10))
    assert found.keys() == {"SP602"}
    assert found["SP602"].count == 1
    assert found["SP602"].example == '"lost" at 30.000 us on pid 1 tid 1'


def test_annotation_that_launched_nothing_needs_no_twin(tmp_path):
    elsewhere = launch(5, tid=2), kernel(8)
    never_ran = launch(3, 11)
    assert findings(tmp_path, host("idle", 0, 20), *elsewhere, never_ran) == {}
    assert findings(tmp_path, host("ends before", 0, 5), launch(5), kernel(8)) == {}


def test_more_annotations_of_a_name_than_twins(tmp_path):
    first = [host("step", 0, 20), launch(5), kernel(8), twin("step", 8, 2)]
    second = [host("step", 100, 20), launch(105, 10), kernel(108, 2, 10)]
    assert findings(tmp_path, *first, *second)["SP602"].count == 1


def test_twin_without_a_host(tmp_path):
    assert findings(tmp_path, twin("step", 8, 2)).keys() == {"SP603"}


def test_slice_that_runs_over_a_whole_later_one(tmp_path):
    assert findings(tmp_path, kernel(0, 10), kernel(10, 5)) == {}
    assert "SP604" not in findings(tmp_path, kernel(0, 10), kernel(5, 5))  # they end together
    found = findings(tmp_path, kernel(0, 1600, name="A"), kernel(10, 5, name="B"), kernel(20, 5))["SP604"]
    assert found.count == 1
    assert found.example == '"A" 0.000..1600.000 us over "B" 10.000..15.000 us on pid 0 tid 7'
    assert findings(tmp_path, twin("step", 0, 100), kernel(10, 5)).keys() == {"SP603"}
