"""SP2xx: each rule, what it says, and what is just not it."""

from __future__ import annotations

import pytest
from small_traces import event, findings, named, slice_, write

from slime_profiler_plugin.check import check_paths

HOUR_US = 3_600_000_000


@pytest.mark.parametrize("ts", [None, "soon", [5], {}, True, 1e30])
def test_event_without_a_usable_time(tmp_path, ts):
    found = findings(tmp_path, slice_(ts=ts), slice_(ts=9))
    assert found["SP201"].count == 1
    assert found["SP201"].example == '"op" without a time on pid 1 tid 1'


@pytest.mark.parametrize("ts", [0, 5, 5.125, 1.5e3, 7_889_238_000_000.5])
def test_times_that_are_usable(tmp_path, ts):
    assert findings(tmp_path, slice_(ts=ts)) == {}


def test_zero_is_a_time_where_the_others_are_near(tmp_path):
    assert findings(tmp_path, slice_(ts=0), slice_(ts=HOUR_US)) == {}
    found = findings(tmp_path, slice_("failed", ts=0, dur=0), slice_(ts=HOUR_US + 1))["SP202"]
    assert found.count == 1
    assert found.message == "1 event is at time 0, the others from 3600000001.000 us on"
    assert findings(tmp_path, slice_(ts=0), slice_(ts=0)) == {}


def test_negative_times_and_durations(tmp_path):
    assert findings(tmp_path, slice_(ts=-0.001))["SP203"].example == '"op" at -0.001 us on pid 1 tid 1'
    found = findings(tmp_path, slice_(dur=-1.5), slice_(dur=0, ts=9))["SP204"]
    assert (found.count, found.example) == (1, '-1.500 us, "op" at 5.000 us on pid 1 tid 1')


def test_metadata_at_a_negative_time_is_not_an_event_at_one(tmp_path):
    assert findings(tmp_path, named("process_name", "x", ts=-1), slice_()).keys() == {"SP205"}
    assert findings(tmp_path, named("process_name", "x", ts=0), slice_()) == {}


@pytest.mark.parametrize(
    ("ts", "codes"),
    [
        (1_795_966_682_358_478.8, {"SP206"}),
        (1_795_966_682_358_478, set()),
        (1_000_000_000_000.123, {"SP207"}),
    ],
)
def test_unix_times_with_a_fraction(tmp_path, ts, codes):
    assert findings(tmp_path, slice_(ts=ts), baseTimeNanoseconds=None).keys() == codes


def test_a_failed_record_does_not_decide_which_clock_it_is(tmp_path):
    trace = [slice_(ts=0), *(slice_(ts=1_795_966_682_358_478 + at) for at in range(3))]
    assert "SP207" not in findings(tmp_path, *trace, baseTimeNanoseconds=None)


def test_times_that_are_strings(tmp_path):
    found = findings(
        tmp_path, slice_(ts="5.125", dur="1"), slice_(ts="later"), slice_(ts=8), event("i", s="t")
    )
    assert found["SP208"].message == "3 times or durations are strings"
    assert found["SP201"].count == 1


def test_a_mended_file_may_begin_at_0_and_go_on_hours_later(tmp_path):
    events = [slice_(ts=0), slice_(ts=2 * HOUR_US)]
    path = write(tmp_path / "mended.json", events, slime_profiler_fix={"version": 1})
    assert check_paths([path]).findings == []
    path = write(tmp_path / "merged.json", events, slime_profiler_merge={"version": 1})
    assert check_paths([path]).findings == []


def test_times_that_lie_weeks_apart(tmp_path):
    week = 7 * 24 * HOUR_US
    assert findings(tmp_path, slice_(ts=5), slice_(ts=4 + week)) == {}
    found = findings(tmp_path, slice_(ts=5), slice_(ts=5 + week))["SP209"]
    assert found.message == "its events lie up to 7 days apart"
    assert "SP209" not in findings(tmp_path, slice_(ts=0), slice_(ts=5 + week))  # a record that failed


def test_unix_times_beside_others_are_not_mended_by_another_base(tmp_path):
    events = slice_(ts=5), slice_(ts=1_795_966_682_358_478.8)
    assert findings(tmp_path, *events, baseTimeNanoseconds=None).keys() == {"SP207", "SP209"}
