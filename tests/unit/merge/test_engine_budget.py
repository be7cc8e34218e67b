"""Fitting an output into a budget: thresholds, what goes first, what the report says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import end_of_arrow, merge, op, write_trace

from slime_profiler_plugin.merge import format_report
from slime_profiler_plugin.merge._budget import (
    _BINS,
    DurationSizes,
    Thresholds,
    choose_thresholds,
    duration_step,
    step_start,
)

durations = st.one_of(st.integers(0, 200), st.integers(0, 2**62))


@given(st.lists(durations, min_size=1, max_size=30))
def test_step_of_a_duration_begins_at_or_before_it_and_the_next_one_after(lengths):
    steps = duration_step(np.array(lengths, np.int64)).tolist()
    for length, step in zip(lengths, steps, strict=True):
        assert 0 <= step < _BINS
        assert step_start(step) <= length < step_start(step + 1)
        assert step_start(step + 1) - step_start(step) <= max(length / 32, 1)
    assert [s for _, s in sorted(zip(lengths, steps, strict=True))] == sorted(steps)


sized = st.lists(st.tuples(durations, st.integers(1, 500)), max_size=20)


def binned(slices):
    lengths, sizes = (np.array([s[n] for s in slices], np.int64) for n in (0, 1))
    return np.bincount(duration_step(lengths), sizes, _BINS).astype(np.int64)


@given(
    st.lists(st.tuples(st.integers(0, 500), sized, sized), max_size=3),
    st.integers(0, 500),
    st.integers(0, 9000),
)
def test_thresholds_are_the_least_with_which_the_rest_fits(sources, fixed, budget):
    sizes = [DurationSizes(kept, binned(kernels), binned(others)) for kept, kernels, others in sources]
    found = choose_thresholds(sizes, fixed, budget)
    kernels = [s for source in sources for s in source[1]]
    others = [s for source in sources for s in source[2]]

    def size(kernel_ns, other_ns):
        left = [n for length, n in kernels if length >= kernel_ns]
        left += [n for length, n in others if length >= other_ns]
        return fixed + sum(source[0] for source in sources) + sum(left)

    if size(0, 0) <= budget:
        assert found == Thresholds()
        return
    steps = sorted(
        {step_start(int(duration_step(np.array([length]))[0])) for length, _ in (*kernels, *others)}
    )
    if found.other_ns:  # then no kernel is left, and it would not have been enough
        assert all(length < found.kernel_ns for length, _ in kernels)
        assert size(found.kernel_ns, 0) > budget
        fewer = [found._replace(other_ns=s) for s in steps if s < found.other_ns]
    else:
        fewer = [found._replace(kernel_ns=s) for s in steps if s < found.kernel_ns]
    for less in fewer:
        assert size(*less) > budget
    if size(2**63, 2**63) <= budget:
        assert size(*found) <= budget


def kernels(count, others=0, arrows=True):
    """Launches of 5 us, each with a kernel of 1 to `count` us and an arrow; `others` long slices."""
    for n in range(count):
        yield op(f"launch{n}", 10 * n, 5)
        yield op(f"kernel{n}", 20_000 + 1000 * n, 1 + n, tid=7, pid=0, cat="kernel", args={"grid": "x" * 50})
        if arrows:
            yield end_of_arrow("s", n, 10 * n)
            yield end_of_arrow("f", n, 20_000 + 1000 * n, tid=7, pid=0)
    for n in range(others):
        yield op(f"other{n}", 10_000_000 + 100 * n, 1 + n % 50, tid=3, args={"why": "y" * 50})


@pytest.mark.parametrize("megabytes", [1, 2])
def test_shortest_kernels_go_first_with_both_ends_of_their_arrows(tmp_path, megabytes):
    path = write_trace(tmp_path / "a.json", list(kernels(6000)))
    report, merged = merge([path], tmp_path / "out.json.gz", budget_bytes=megabytes * 10**6)
    (output,) = report.outputs
    assert output.size <= megabytes * 1.03e6
    assert output.size >= megabytes * 0.75e6  # a step of durations at a time
    left = sorted(int(e["name"][6:]) for e in merged.events if e["name"].startswith("kernel"))
    assert left == list(range(6000 - len(left), 6000))
    assert sum(e["name"].startswith("launch") for e in merged.events) == 6000
    arrows = {letter: sum(e["ph"] == letter for e in merged.events) for letter in "sf"}
    assert arrows == {"s": len(left), "f": len(left)}
    assert output.total.dropped == {
        "kernel, dropped for the budget": 6000 - len(left),
        "arrow of a dropped slice": 2 * (6000 - len(left)),
    }
    assert (output.counts["arrows"], output.counts["slices"]) == (len(left), 6000 + len(left))
    told = f"kernels shorter than {output.kernel_threshold_ns / 1000:.3f} us are not written"
    assert any(told in line for line in format_report(report))
    assert min(left) * 1000 + 1000 >= output.kernel_threshold_ns > min(left) * 1000 - 1000
    assert output.slice_threshold_ns == 0


def test_other_slices_go_only_when_no_kernel_is_left(tmp_path):
    path = write_trace(tmp_path / "a.json", list(kernels(500, others=9000, arrows=False)))
    report, merged = merge([path], tmp_path / "out.json.gz", budget_bytes=10**6)
    (output,) = report.outputs
    assert output.size <= 1.03e6
    assert output.total.dropped["kernel, dropped for the budget"] == 500
    assert not any(e["name"].startswith("kernel") for e in merged.events)
    assert 0 < output.slice_threshold_ns <= 51_000
    assert all(float(e["dur"]) * 1000 >= output.slice_threshold_ns for e in merged.events)
    assert output.kernel_threshold_ns < 2**63
    report.to_builtins()


def test_budget_that_nothing_meets_leaves_what_is_never_dropped(tmp_path):
    events = [op("a", 0, 5), {"ph": "i", "s": "t", "name": "mark", "ts": 1, "pid": 1, "tid": 1}]
    report, merged = merge([write_trace(tmp_path / "a.json", events)], tmp_path / "o.json", budget_bytes=1)
    assert [e["name"] for e in merged.events] == ["mark"]
    assert report.outputs[0].total.dropped == {"slice, dropped for the budget": 1}


def test_a_budget_that_is_large_enough_changes_nothing(tmp_path):
    path = write_trace(tmp_path / "a.json", list(kernels(50)))
    merge([path], tmp_path / "all.json")
    merge([path], tmp_path / "fits.json", budget_bytes=10**6)
    assert (tmp_path / "all.json").read_bytes() == (tmp_path / "fits.json").read_bytes()
