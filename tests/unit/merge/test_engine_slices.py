"""Slices of traces on lanes, the slice under a moment, begins and ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import assert_nested

from slime_profiler_plugin.merge._begins import match_ends
from slime_profiler_plugin.merge._kinds import BEGIN, END
from slime_profiler_plugin.merge._lanes import assign_lanes
from slime_profiler_plugin.merge._parents import find_parents
from slime_profiler_plugin.merge._slices import _STRIDE, find_innermost, find_next, lay_out_tracks

slices = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 30)).map(
        lambda s: (s[0], s[1], s[1] + s[2])
    ),
    max_size=60,
)


def lay_out(spans):
    events = np.arange(100, 100 + len(spans))
    tracks, starts, ends = (np.array([span[n] for span in spans], np.int64) for n in range(3))
    return list(lay_out_tracks(events, tracks, starts, ends))


@given(slices)
def test_nothing_crosses_on_a_lane_and_every_slice_takes_the_first_that_has_room(spans):
    laid = lay_out(spans)
    assert [each.track for each in laid] == sorted({track for track, _, _ in spans})
    seen = []
    for each in laid:
        own = list(zip(each.starts.tolist(), each.ends.tolist(), strict=True))
        assert [(each.track, *span) for span in own] == [spans[event - 100] for event in each.events]
        assert own == sorted(own, key=lambda span: (span[0], -span[1]))
        assert each.lanes.tolist() == assign_lanes(own)
        for lane in set(each.lanes.tolist()):
            assert_nested([span for span, at in zip(own, each.lanes, strict=True) if at == lane])
        seen.extend(each.events.tolist())
    assert sorted(seen) == list(range(100, 100 + len(spans)))


@given(slices)
def test_a_slice_lies_in_the_last_one_before_it_that_is_open(spans):
    own = sorted(((start, end) for _, start, end in spans), key=lambda span: (span[0], -span[1]))
    starts, ends = (np.array([span[n] for span in own], np.int64) for n in range(2))
    parents = [
        max((before for before in range(at) if ends[before] > starts[at]), default=-1)
        for at in range(len(own))
    ]
    assert find_parents(starts, ends).tolist() == parents


def test_slices_that_lie_deep_in_each_other_again_and_again():
    depth = 300
    pyramid = [(0, at, 2 * depth - at) for at in range(depth)]
    again = [(0, start + 1000 * n, end + 1000 * n) for n in range(3) for _, start, end in pyramid]
    crossing = [(0, 5000, 5010), (0, 5005, 5020), (0, 5010, 5015), (0, 5020, 5021)]
    (laid,) = lay_out([*again, *crossing])
    assert laid.lanes.tolist() == [0] * (3 * depth) + [0, 1, 0, 0]


@pytest.mark.parametrize("count", [15, 16, 17, 18, 300])
def test_slices_that_all_cross_have_a_lane_each_however_many(count):
    crossing = [(0, at, 1000 + at) for at in range(count)]
    again = [(0, 5000, 5001), (0, 6000, 6001)]
    (laid,) = lay_out([*crossing, *again])
    assert laid.lanes.tolist() == [*range(count), 0, 0]


def test_equal_slices_and_those_without_length_share_a_lane():
    (laid,) = lay_out([(0, 5, 9), (0, 5, 9), (0, 5, 5), (0, 9, 9), (0, 7, 7)])
    assert laid.lanes.tolist() == [0] * 5


def test_no_slice_at_all():
    assert lay_out([]) == []


def innermost(laid, at):
    """Word for word: of those that are open, the one that began last."""
    spans = list(zip(laid.starts.tolist(), laid.ends.tolist(), strict=True))
    found = [n for n, (start, end) in enumerate(spans) if start <= at < end or start == end == at]
    return max(found, default=-1)


@given(slices.filter(bool), st.lists(st.integers(-1, 95), min_size=1, max_size=20))
def test_slice_under_a_moment_is_the_innermost(spans, times):
    for laid in lay_out(spans):
        at = np.array(times, np.int64)
        assert find_innermost(laid, at).tolist() == [innermost(laid, each) for each in times]
        following = [next((n for n, s in enumerate(laid.starts) if s > each), -1) for each in times]
        assert find_next(laid, at).tolist() == following


@pytest.mark.parametrize("count", [_STRIDE - 1, _STRIDE, _STRIDE + 1, 3 * _STRIDE + 7])
def test_slice_under_a_moment_among_many_short_ones(count):
    spans = [(0, 0, 10 * count), *((0, 10 * n, 10 * n + 2) for n in range(count))]
    (laid,) = lay_out(spans)
    times = np.array([5, 10 * count - 5, 10 * count - 9, 10 * count, 10 * count + 1])
    assert find_innermost(laid, times).tolist() == [innermost(laid, at) for at in times.tolist()]


def matched(rows, last=99):
    """(begin, length, closer) and strays of (track, time, letter) rows."""
    tracks, times = (np.array([row[n] for row in rows], np.int64) for n in (0, 1))
    kinds = np.array([BEGIN if row[2] == "B" else END for row in rows], np.uint8)
    found = match_ends(np.arange(len(rows)), tracks, times, kinds, last)
    listed = zip(found.begins.tolist(), found.lengths.tolist(), found.closers.tolist(), strict=True)
    return list(listed), found.stray.tolist()


@pytest.mark.parametrize(
    ("rows", "begins", "stray"),
    [
        ([(0, 1, "B"), (0, 2, "B"), (0, 3, "E"), (0, 9, "E")], [(0, 8, 3), (1, 1, 2)], []),
        ([(0, 1, "E"), (0, 2, "B"), (0, 3, "E"), (0, 4, "E")], [(1, 1, 2)], [0, 3]),
        ([(0, 1, "B"), (0, 40, "B"), (0, 50, "E")], [(0, 98, -1), (1, 10, 2)], []),
        ([(0, 5, "B"), (0, 5, "E"), (0, 5, "B"), (0, 5, "E")], [(0, 0, 1), (2, 0, 3)], []),
        ([(0, 1, "B"), (1, 2, "B"), (0, 3, "E"), (1, 4, "E")], [(0, 2, 2), (1, 2, 3)], []),
        ([(0, 9, "E"), (0, 1, "B")], [(1, 8, 0)], []),  # in any order in the file
        ([], [], []),
    ],
)
def test_an_end_closes_what_is_open_on_its_track_and_began_last(rows, begins, stray):
    assert matched(rows) == (begins, stray)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.sampled_from("BE")), max_size=40))
def test_every_begin_and_end_is_accounted_for_and_what_was_matched_nests(rows):
    begins, stray = matched(rows)
    closers = [closer for _, _, closer in begins if closer >= 0]
    assert sorted([b for b, _, _ in begins] + closers + stray) == list(range(len(rows)))
    for track in range(3):
        own = [(rows[b][1], rows[b][1] + length) for b, length, _ in begins if rows[b][0] == track]
        assert all(end >= start for start, end in own)
        assert_nested(own)
