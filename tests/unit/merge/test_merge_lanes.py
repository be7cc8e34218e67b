"""Rows for slices that would cross."""

from collections import defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from reading import assert_nested

from slime_profiler_plugin.merge._items import Item
from slime_profiler_plugin.merge._lanes import assign_lanes, assign_rows, nesting_order
from slime_profiler_plugin.merge._rows import Row, lay_out

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


def _first_fit(spans, parents):
    """What `assign_lanes` promises, word for word."""
    lanes, stacks = [0] * len(spans), []
    for index in nesting_order(spans):
        start, end = spans[index]
        order = list(range(len(stacks)))
        parent = parents[index]
        if parent is not None and parent != index and spans[parent][0] <= start and stacks:
            order.insert(0, lanes[parent])
        for stack in stacks:
            while stack and stack[-1] <= start:
                stack.pop()
        fitting = [lane for lane in order if not stacks[lane] or end <= stacks[lane][-1]]
        lane = fitting[0] if fitting else len(stacks)
        if lane == len(stacks):
            stacks.append([])
        stacks[lane].append(end)
        lanes[index] = lane
    return lanes


@given(slices, st.randoms(use_true_random=False))
def test_lane_is_the_parents_else_the_first_that_has_room(spans, random):
    parents = [random.choice([None, *range(len(spans))]) for _ in spans]
    assert assign_lanes(spans, parents) == _first_fit(spans, parents)
    assert assign_lanes(spans) == _first_fit(spans, [None] * len(spans))


@given(slices)
def test_row_is_the_first_that_is_not_busy(spans):
    expected, busy_until = [0] * len(spans), []
    for index in nesting_order(spans):
        start, end = spans[index]
        row = next((r for r, until in enumerate(busy_until) if until <= start), len(busy_until))
        busy_until[row:] = [end, *busy_until[row + 1 :]]
        expected[index] = row
    assert assign_rows(spans) == expected


def test_many_slices_that_all_cross_have_a_lane_each_and_the_first_is_used_again():
    crossing = [(at, 1000 + at) for at in range(300)]
    assert assign_lanes([*crossing, (1000, 1010), (1001, 1300)]) == [*range(300), 0, 1]


def _free(items, index):
    """Every ns of an item that no later item of the row lies over, as stretches; cut at its neighbours."""
    outer = items[index]
    if outer.is_mark:
        return []
    inner = [item for item in items[index + 1 :] if not item.is_mark and item.start_ns < outer.end_ns]
    free, at = [], outer.start_ns
    for item in inner:
        if at < item.start_ns:
            free.append((at, item.start_ns))
        at = max(at, item.end_ns)
    return [*free, (at, outer.end_ns)] if at < outer.end_ns else free


@given(slices, st.randoms(use_true_random=False))
def test_free_stretches_are_what_no_inner_slice_covers(spans, random):
    row = ("thread", "", 1, 0)
    items = [
        Item(start, end, "x", "phase", row, {}, is_mark=random.random() < 0.2 and start == end)
        for start, end in spans
    ]
    for laid in lay_out(items, lambda key: key):
        assert isinstance(laid, Row)
        assert laid.free_stretches() == [_free(laid.items, index) for index in range(len(laid.items))]


def test_free_stretches_of_nested_slices():
    row = ("thread", "", 1, 0)
    nested = [(0, 100), (10, 30), (15, 20), (30, 40), (90, 100)]
    (laid,) = lay_out([Item(start, end, "x", "phase", row, {}) for start, end in nested], lambda key: key)
    assert laid.free_stretches() == [
        [(0, 10), (40, 90)],
        [(10, 15), (20, 30)],
        [(15, 20)],
        [(30, 40)],
        [(90, 100)],
    ]
