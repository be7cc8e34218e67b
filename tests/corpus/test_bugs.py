"""Every case of the folder of reported faults, with the values that it says are right."""

from __future__ import annotations

import re

import pytest
from corpus import BUGS, flow_pairs, merge, names, needs_shared, span
from merged_trace import ns

pytestmark = needs_shared
US = 1000


@pytest.fixture
def merged(request, tmp_path):
    """The case that the test names, all its files merged."""
    return merge_case(request.param, tmp_path)


def merge_case(name, tmp_path):
    files = [path for path in sorted((BUGS / name).iterdir()) if path.name != "expected.md"]
    return merge(files, tmp_path)


def case(name):
    return pytest.mark.parametrize("merged", [name], indirect=True, ids=[name])


def rank_of(merged, event):
    found = re.search(r"\brank (\d+)\b", merged.process_of(event))
    return int(found[1]) if found else None


@case("01-flow-id-collision")
def test_arrows_of_two_ranks_keep_apart(merged):
    assert names(merged.slices) == {"cudaLaunchKernel": 2, "gemm_r0": 1, "gemm_r1": 1}
    assert (len(merged.of_phase("s")), len(merged.of_phase("f"))) == (2, 2)
    pairs = flow_pairs(merged)
    assert len(pairs) == 2
    assert [[rank_of(merged, end) for end in pair] for pair in pairs] == [[0, 0], [1, 1]]
    first = ns(pairs[0][0]["ts"])
    times = [(ns(start["ts"]) - first, ns(end["ts"]) - first) for start, end in pairs]
    assert times == [(0, 30 * US), (10 * US, 90 * US)]
    assert merged.exit_code == 0


@case("02-gpu-pid-shared")
def test_devices_of_two_ranks_are_two_processes(merged):
    assert len({event["pid"] for event in merged.slices}) == 4
    for rank in (1, 3):
        kernel = merged.slice_named(f"k_r{rank}")
        assert rank_of(merged, kernel) == rank
        assert "gpu" in merged.process_of(kernel).lower()
    (ranks,) = merged.report["ranks"]
    assert ranks["missing"] == [0, 2, 4, 5, 6, 7]


@case("03-metadata-not-remapped")
def test_names_move_with_what_they_name(merged):
    used = {event["pid"] for event in merged.events if event["ph"] != "M"}
    assert {event["pid"] for event in merged.of_phase("M")} == used
    assert len(used) == 2
    for rank in (0, 1):
        operator = merged.slice_named(f"op{rank}")
        assert rank_of(merged, operator) == rank
        assert merged.thread_of(operator) == f"MainThread r{rank}"


@case("04-same-pid-containers")
def test_one_pid_in_all_containers_is_four_processes(merged):
    assert names(merged.slices) == {f"fwd{rank}": 1 for rank in range(4)}
    assert len({(event["pid"], event["tid"]) for event in merged.slices}) == 4
    assert len({event["pid"] for event in merged.slices}) == 4
    assert [rank_of(merged, merged.slice_named(f"fwd{rank}")) for rank in range(4)] == [0, 1, 2, 3]
    assert merged.exit_code == 0


def test_an_older_merge_is_no_input_and_stages_keep_apart(tmp_path):
    folder = BUGS / "05-prefix-and-old-merge-in-dir"
    of_run1 = [path for path in sorted(folder.iterdir()) if "run1" in path.name]
    assert len(of_run1) == 4
    merged = merge(of_run1, tmp_path)
    assert names(merged.slices) == {"dec0": 1, "dec1": 1, "ext0": 1}
    assert len({event["pid"] for event in merged.slices}) == 3
    for name, stage, rank in (("dec0", "DECODE", 0), ("dec1", "DECODE", 1), ("ext0", "EXTEND", 0)):
        process = merged.process_of(merged.slice_named(name))
        assert stage in process
        assert re.search(rf"\btp ?{rank}\b|\brank {rank}\b", process)
    assert "merged-run1" in merged.said()


def test_a_folder_is_searched_without_the_older_merge(tmp_path):
    merged = merge(BUGS / "05-prefix-and-old-merge-in-dir", tmp_path)
    assert names(merged.slices) == {"dec0": 1, "dec1": 1, "ext0": 1, "other": 1}
    assert len({event["pid"] for event in merged.slices}) == 4
    assert "merged-run1" in merged.said()


@case("06-missing-rank")
def test_a_missing_rank_is_named(merged):
    assert names(merged.slices) == {"pp0": 1, "pp1": 1, "pp3": 1}
    assert rank_of(merged, merged.slice_named("pp3")) == 3
    (ranks,) = merged.report["ranks"]
    assert (ranks["seen"], ranks["world_size"], ranks["missing"]) == (3, 4, [2])
    assert merged.exit_code == 3


@case("08-two-ranks-one-path")
def test_two_files_in_one_are_not_mixed(merged):
    found = names(merged.slices)
    assert found["ok"] == 1
    # What stands before the place where the second file begins is rank 0's; the rest could be anyone's.
    assert set(found) <= {"ok", "r0_a"}
    assert rank_of(merged, merged.slice_named("ok")) == 2
    if "r0_a" in found:
        assert rank_of(merged, merged.slice_named("r0_a")) == 0
    reasons = [entry for entry in merged.report["damage"] if entry["file"].endswith("mixed.json")]
    assert re.search(r"(byte|line) \d+", " ".join(entry["reason"] for entry in reasons))
    assert merged.exit_code == 3


@case("09-control-char-in-name")
def test_control_characters_are_escaped(merged):
    assert names(merged.slices) == {"mod.py(0): \x01x\ny": 1, "clean": 1}


@case("11-non-utf8-name")
def test_only_bytes_that_are_no_text_are_replaced(merged):
    (odd,) = [name for name in names(merged.slices) if name != "clean"]
    assert re.fullmatch("caf\ufffd+_end", odd)
    assert len(merged.slices) == 2
    (replaced,) = merged.damage("replaced")
    assert re.search(r"\b1 (name|event)", replaced["reason"])


@case("12-array-and-string-pids")
def test_arrays_with_words_as_pids(merged):
    assert len(merged.slices) == 4
    assert len({(event["pid"], event["tid"]) for event in merged.slices}) == 4
    for event in merged.slices:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        words = "CPU functions" if event["name"] == "aten::mul" else "CUDA functions"
        assert words in merged.process_of(event)
    assert sorted(rank_of(merged, event) for event in merged.slices) == [0, 0, 1, 1]
    assert re.search(r"unknown|cannot be known|not known", merged.said())
    (output,) = merged.report["outputs"]
    assert output["base_unix_ns"] is None


@case("15-zero-ts-kernels")
def test_a_kernel_at_zero_is_dropped_by_name_with_its_arrow(merged):
    assert names(merged.slices) == {"cudaLaunchKernel": 1, "cudaDeviceSynchronize": 1}
    assert span(merged.slices) == 300 * US
    assert flow_pairs(merged) == []
    # The kernel, the end of its arrow at ts 0, and the start that then leads nowhere.
    assert sum(merged.total["dropped"].values()) in (2, 3)


@case("16-absolute-and-based-mix")
def test_absolute_and_based_times_meet_on_one_clock(merged):
    first, second = (ns(merged.slice_named(name)["ts"]) for name in "ab")
    assert second - first == 50_250
    assert span(merged.slices) == 60_250


@case("18-base-after-events")
def test_a_base_behind_the_events_counts(merged):
    assert len(merged.slices) == 2
    assert ns(merged.slice_named("b")["ts"]) - ns(merged.slice_named("a")["ts"]) == 20 * US


@case("20-no-distributed-info")
def test_ranks_come_from_names_or_stay_unknown(merged):
    assert len(merged.slices) == 3
    assert len({event["pid"] for event in merged.slices}) == 3
    ranks = {event["name"]: rank_of(merged, event) for event in merged.slices}
    assert ranks == {"op4242": 1, "op4243": 2, "op4244": None}
    assert "unknown" in merged.process_of(merged.slice_named("op4244"))


@case("21-duplicate-rank")
def test_two_files_of_one_rank_are_told_apart(merged):
    assert names(merged.slices) == {"ProfilerStep#10": 1, "ProfilerStep#20": 1, "op": 2}
    processes = {merged.process_of(event) for event in merged.slices}
    assert len(processes) == len({event["pid"] for event in merged.slices}) == 2
    assert {rank_of(merged, event) for event in merged.slices} == {0}
    assert all(re.search(r"step[12]0", process) for process in processes)
    warning = " ".join(merged.report["warnings"])
    assert "rank0_step10.json" in warning
    assert "rank0_step20.json" in warning


@case("22-overlapping-kernels")
def test_crossing_kernels_get_a_lane_of_the_same_name(merged):
    times = {event["name"]: (ns(event["ts"]), ns(event["dur"])) for event in merged.slices}
    first = times["A"][0]
    assert {name: (at - first, took) for name, (at, took) in times.items()} == {
        "A": (0, 3776),
        "B": (2000, 2000),
        "C": (2500, 500),
    }
    assert {merged.thread_of(event) for event in merged.slices} == {"stream 7"}
    assert len({event["tid"] for event in merged.slices}) == 2


@case("25-reused-flow-id")
def test_an_id_that_is_used_twice_is_two_arrows(merged):
    pairs = flow_pairs(merged)
    assert len(pairs) == len({start["id"] for start, _ in pairs}) == 2
    track_of = {(event["pid"], event["tid"]): event["name"] for event in merged.slices}
    joined = [tuple(track_of[end["pid"], end["tid"]] for end in pair) for pair in pairs]
    assert joined == [("A", "B"), ("C", "D")]


@case("27-ray-timeline-strings")
def test_rays_words_become_processes_and_threads(merged):
    assert len(merged.slices) == 5
    assert len({event["pid"] for event in merged.slices}) == 3
    assert len({(event["pid"], event["tid"]) for event in merged.slices}) == 4
    rows = {(merged.process_of(event), merged.thread_of(event)) for event in merged.slices}
    for node, worker in (("10.0.0.1", "aa"), ("10.0.0.1", "bb"), ("10.0.0.2", "aa")):
        assert any(node in process and f"worker:{worker}" in thread for process, thread in rows)
    assert any("driver:01" in thread for _, thread in rows)
    (output,) = merged.report["outputs"]
    unix = {(merged.thread_of(event), merged.process_of(event)): [] for event in merged.slices}
    for event in merged.slices:
        unix[merged.thread_of(event), merged.process_of(event)].append(
            output["base_unix_ns"] + ns(event["ts"])
        )
    # Ray writes the shortest text of a binary float, which has steps of 250 ns here: the case speaks of the
    # floats ...428.75 and 1000.25 us, its file says 428.8 and 1000.2. What the file says is what is shown.
    assert min(map(min, unix.values())) == 1795966682358428_800
    (twice,) = [sorted(times) for times in unix.values() if len(times) == 2]
    assert twice[1] - twice[0] == 1000_200


@case("29-nsys-no-nvtx-table")
def test_an_export_without_optional_tables(merged):
    assert names(merged.slices) == {"cudaLaunchKernel_v7000": 1, "gemm": 1}
    ((start, end),) = flow_pairs(merged)
    assert ns(merged.slice_named("gemm")["dur"]) == 3000
    assert (start["pid"], end["pid"]) == tuple(
        merged.slice_named(name)["pid"] for name in ("cudaLaunchKernel_v7000", "gemm")
    )
    assert merged.exit_code == 0


@case("32-truncated-gzip")
def test_a_truncated_rank_is_salvaged_and_said_to_be_one(merged):
    assert rank_of(merged, merged.slice_named("ok")) == 0
    salvaged = [event for event in merged.slices if event["name"] != "ok"]
    assert {rank_of(merged, event) for event in salvaged} == {1}
    assert len(salvaged) >= 15
    assert merged.slice_named("op866")["dur"] == 3
    (truncated,) = {entry["file"] for entry in merged.damage("truncated")}
    assert truncated.endswith("rank1.json.gz")
    assert merged.exit_code == 3


@case("34-event-without-pid")
def test_events_without_pid_tid_or_dur(merged):
    whole = merged.slice_named("x")
    assert (ns(whole["dur"]), len(merged.slices)) == (5000, 2)
    assert all(isinstance(event["pid"], int) for event in merged.events)
    (counter,) = merged.of_phase("C")
    assert counter["args"] == {"n": 3}
    assert counter["name"] == "queue"
    assert names(merged.of_phase("iI")) == {"mark": 1}
    assert sum(merged.total["dropped"].values()) == 2
    assert ns(merged.slice_named("nodur")["dur"]) == 0
    (output,) = merged.report["outputs"]
    assert output["mended"] == {"slice without a length, written with length 0": 1}
