"""SP1xx: each rule, what it says, and what is just not it."""

from __future__ import annotations

import pytest
from small_traces import event, findings, named, slice_


def test_slices_that_cross_by_a_nanosecond(tmp_path):
    found = findings(tmp_path, slice_("A", 3, 3.776), slice_("B", 5, 1.777), slice_("C", 5.5, 0.5))["SP101"]
    assert (found.count, found.severity, found.mended_by) == (1, "error", "fix")
    assert found.message == "1 slice crosses another on a track"
    assert found.example == '"A" 3.000..6.776 us and "B" 5.000..6.777 us on pid 1 tid 1'


def test_slices_that_nest_touch_or_lie_on_other_tracks_do_not_cross(tmp_path):
    assert (
        findings(
            tmp_path,
            slice_("outer", 0, 10),
            slice_("same end", 4, 6),
            slice_("touches", 10, 3),
            slice_("empty", 10, 0),
            slice_("same", 10, 3),
            slice_("other thread", 5, 20, tid=2),
            slice_("other process", 5, 20, pid=2),
        )
        == {}
    )


def test_a_slice_that_was_found_crossing_is_out_of_the_way(tmp_path):
    found = findings(tmp_path, slice_("A", 0, 4), slice_("B", 2, 4), slice_("C", 5, 3))["SP101"]
    assert found.count == 1


def test_first_crossing_in_time_is_shown_whatever_the_order_in_the_file(tmp_path):
    late = [slice_("late", 100, 5, tid=1), slice_("crosses late", 103, 5, tid=1)]
    early = [slice_("early", 1, 5, tid=2), slice_("crosses early", 3, 5, tid=2)]
    found = findings(tmp_path, *late, *early)["SP101"]
    assert found.count == 2
    assert found.example.startswith('"early" 1.000..6.000 us and "crosses early"')


def test_begin_and_end_are_a_slice_that_may_cross_too(tmp_path):
    begin, end = event("B", 0, name="outer"), event("E", 5)
    assert findings(tmp_path, begin, slice_("inner", 2, 2), end) == {}
    assert findings(tmp_path, begin, slice_("crosses", 2, 5), end)["SP101"].count == 1


def test_begin_without_end_and_end_without_begin(tmp_path):
    found = findings(tmp_path, event("E", 1, name="stray"), event("B", 2, name="open"), slice_(tid=2))
    assert found.keys() == {"SP102", "SP103"}
    assert found["SP102"].example == '"open" at 2.000 us on pid 1 tid 1'
    assert found["SP103"].example == '"stray" at 1.000 us on pid 1 tid 1'


def test_begins_and_ends_pair_in_the_order_of_time_on_their_own_thread(tmp_path):
    paired = [
        event("E", 9),
        event("B", 1),
        event("B", 2),
        event("E", 3),
        event("B", 1, tid="1"),
        event("E", 4),
    ]
    assert findings(tmp_path, *paired).keys() == {"SP105", "SP108"}
    assert findings(tmp_path, event("B", 1), event("E", 2, tid=2)).keys() == {"SP102", "SP103"}


@pytest.mark.parametrize("dur", [None, "abc", [1]])
def test_slice_without_a_duration(tmp_path, dur):
    assert findings(tmp_path, slice_(dur=dur), slice_(ts=20, dur=0))["SP104"].count == 1


def test_string_ids_count_tracks_and_tell_events(tmp_path):
    found = findings(tmp_path, slice_(tid="stream 7"), slice_(tid="stream 7", ts=9), slice_(pid="CPU", tid=3))
    assert found["SP105"].message == "2 tracks have strings as pid or tid (3 events)"
    assert found["SP105"].example == 'pid 1 tid "stream 7"'


@pytest.mark.parametrize(
    ("tid", "code"),
    [(2**32 - 1, None), (2**32, "SP106"), (-(2**32), "SP106"), (-1, "SP107"), (2**53, "SP106"), (0, None)],
)
def test_ids_within_32_bits(tmp_path, tid, code):
    assert findings(tmp_path, slice_(tid=tid)).keys() == ({code} if code else set())


def test_thread_that_is_spelled_in_two_ways(tmp_path):
    found = findings(tmp_path, slice_(tid="7"), slice_(tid=7, ts=9), slice_(tid="8", ts=9))
    assert found["SP108"].count == 1
    assert found["SP108"].example == 'pid 1 tid "7" and pid 1 tid 7'


def test_events_without_a_process_or_thread(tmp_path):
    counter = event("C", name="queue", tid=None, args={"n": 3})
    assert findings(tmp_path, counter) == {}
    found = findings(tmp_path, counter, slice_(tid=None), event("C", pid=None, args={"n": 3}), slice_())
    assert found["SP109"].count == 2
    assert found["SP109"].example == '"op" at 5.000 us on pid 1 tid (none)'


def test_names_that_disagree_and_names_that_are_told_twice(tmp_path):
    same = named("thread_name", "python"), named("thread_name", "python"), slice_()
    assert findings(tmp_path, *same) == {}
    found = findings(tmp_path, *same, named("thread_name", "gloo"), named("process_name", "p", tid=0))
    assert found.keys() == {"SP110"}
    assert found["SP110"].example == 'pid 1 tid 1 is "python" and "gloo"'


def test_metadata_of_a_process_that_does_nothing(tmp_path):
    found = findings(tmp_path, named("process_name", "GPU 7", pid=7), named("process_name", "x"), slice_())
    assert found["SP111"].message == "1 process has metadata and no event"
    assert found["SP111"].example == "pid 7"
