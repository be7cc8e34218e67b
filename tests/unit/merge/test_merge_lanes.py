"""Rows for slices that would cross."""

from collections import defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from reading import assert_nested

from slime_profiler_plugin.merge._lanes import assign_lanes, assign_rows

slices = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 40)).map(lambda s: (s[0], s[0] + s[1])), max_size=60
)


def test_nested_and_adjacent_slices_stay_on_one_lane():
    assert assign_lanes([(0, 10), (0, 4), (4, 10), (5, 6), (10, 20)]) == [0, 0, 0, 0, 0]


def test_crossing_by_one_nanosecond_moves():
    assert assign_lanes([(0, 10), (9, 11)]) == [0, 1]


def test_overlapping_kernels_of_which_one_nests_in_both():
    # A 3..6.776, B 5..7, C 5.5..6 on one stream.
    assert assign_lanes([(3000, 6776), (5000, 7000), (5500, 6000)]) == [0, 1, 0]


def test_child_follows_its_parent_to_its_lane():
    crossing = [(0, 10), (5, 15), (6, 8)]
    assert assign_lanes(crossing) == [0, 1, 0]
    assert assign_lanes(crossing, [None, None, 1]) == [0, 1, 1]


@given(slices, st.randoms(use_true_random=False))
def test_no_lane_has_crossing_slices_and_no_more_lanes_than_needed_are_used(spans, random):
    parents = [random.choice([None, *range(len(spans))]) for _ in spans]
    for lanes in (assign_lanes(spans), assign_lanes(spans, parents)):
        by_lane = defaultdict(list)
        for span, lane in zip(spans, lanes, strict=True):
            by_lane[lane].append(span)
        for group in by_lane.values():
            assert_nested(group)
        assert sorted(by_lane) == list(range(len(by_lane)))


@given(slices)
def test_rows_hold_one_interval_at_a_time_and_are_used_again(spans):
    rows = assign_rows(spans)
    by_row = defaultdict(list)
    for span, row in zip(spans, rows, strict=True):
        by_row[row].append(span)
    for group in by_row.values():
        ordered = sorted(group)
        assert all(before[1] <= after[0] for before, after in pairwise(ordered))
    most = max((sum(a <= t < b for a, b in spans) for t, _ in spans), default=0)
    zero = sum(a == b for a, b in spans)
    assert len(by_row) <= most + zero
