"""SP3xx: each rule, what it says, and what is just not it."""

from __future__ import annotations

import pytest
from small_traces import event, findings, flow, slice_

A_AND_B = [slice_("A", 0, 400, tid=1), slice_("B", 0, 400, tid=2)]


def test_an_arrow_from_slice_to_slice_is_in_order(tmp_path):
    step = event("t", 20, tid=2, id=1, cat="req", name="req")
    assert findings(tmp_path, *A_AND_B, flow("s", 10), step, flow("f", 30, tid=2)) == {}


def test_one_start_with_several_ends_is_no_id_that_is_used_again(tmp_path):
    assert findings(tmp_path, *A_AND_B, flow("s", 10), flow("f", 30, tid=2), flow("f", 40, tid=2)) == {}


def test_flow_id_that_is_used_again(tmp_path):
    again = [flow("s", 10), flow("f", 20, tid=2), flow("s", 30), flow("f", 40, tid=2)]
    other_category = [{**each, "cat": "other"} for each in again[:2]]
    assert findings(tmp_path, *A_AND_B, *again[:2], *other_category) == {}
    found = findings(tmp_path, *A_AND_B, *again)
    assert found.keys() == {"SP301"}
    assert found["SP301"].message == "1 flow id starts more than one arrow"
    assert found["SP301"].example == '"req" at 10.000 us on pid 1 tid 1'


def test_ends_and_starts_alone(tmp_path):
    found = findings(tmp_path, *A_AND_B, flow("s", 10, key=1), flow("f", 20, tid=2, key=2))
    assert found.keys() == {"SP302", "SP303"}
    assert found["SP302"].example == '"req" at 20.000 us on pid 1 tid 2'
    assert found["SP303"].example == '"req" at 10.000 us on pid 1 tid 1'


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("id42", "no integer"),
        ("7", "no integer"),
        (1.5, "no integer"),
        (2**63, "not within"),
        (-1, "not within"),
    ],
)
def test_ids_that_perfetto_does_not_take(tmp_path, key, problem):
    found = findings(tmp_path, *A_AND_B, flow("s", 10, key=key), flow("f", 20, tid=2, key=key))
    assert found.keys() - {"SP412"} == {"SP304"}
    assert found["SP304"].count == 2
    assert found["SP304"].example.startswith(f"it is {problem}")


def test_id2_and_no_id(tmp_path):
    ends = [flow("s", 10, key=None, id2={"local": 3}), flow("f", 20, tid=2, key=None, id2={"local": 3})]
    assert findings(tmp_path, *A_AND_B, *ends).keys() == {"SP304"}
    found = findings(tmp_path, *A_AND_B, flow("s", 10, key=None))
    assert found.keys() == {"SP304"}
    assert found["SP304"].example.startswith("it is missing")


def test_largest_id_is_fine(tmp_path):
    ends = flow("s", 10, key=2**63 - 1024), flow("f", 20, tid=2, key=2**63 - 1024)
    assert findings(tmp_path, *A_AND_B, *ends) == {}


def test_flow_events_outside_of_slices(tmp_path):
    end = flow("f", 30, tid=2)
    assert findings(tmp_path, *A_AND_B, flow("s", 400), end).keys() == {"SP306"}  # the last moment is inside
    found = findings(tmp_path, *A_AND_B, flow("s", 401), {**end, "ts": 500})
    assert found["SP305"].count == 2
    assert found["SP305"].example == '"req" at 401.000 us on pid 1 tid 1'
    next_slice = {key: value for key, value in end.items() if key != "bp"}
    assert findings(tmp_path, *A_AND_B, flow("s", 10), {**next_slice, "ts": 500}) == {}


def test_flow_events_within_begin_and_end(tmp_path):
    slices = [event("B", 0), event("E", 50), event("B", 0, tid=2)]
    assert findings(tmp_path, *slices, flow("s", 10), flow("f", 70, tid=2)).keys() == {"SP102"}
    assert "SP305" in findings(tmp_path, *slices, flow("s", 51), flow("f", 70, tid=2))


def test_a_longer_slice_that_began_earlier_holds_the_flow(tmp_path):
    slices = [slice_("outer", 0, 100), slice_("short", 10, 5), slice_("B", 0, 100, tid=2)]
    assert findings(tmp_path, *slices, flow("s", 50), flow("f", 60, tid=2)) == {}


def test_end_before_its_start(tmp_path):
    assert findings(tmp_path, *A_AND_B, flow("s", 30), flow("f", 30, tid=2)) == {}
    found = findings(tmp_path, *A_AND_B, flow("s", 30), flow("f", 29.999, tid=2))
    assert found.keys() == {"SP306"}


def test_async_events_that_do_not_pair(tmp_path):
    pair = [event("b", 1, id="x", cat="c"), event("e", 2, id="x", cat="c")]
    assert findings(tmp_path, *pair) == {}
    assert findings(tmp_path, *pair, event("e", 3, id="x", cat="c"))["SP307"].count == 1
    assert findings(tmp_path, pair[0], {**pair[1], "cat": "d"})["SP307"].count == 2
    local = [event("b", 1, id2={"local": 1}), event("e", 2, id2={"local": 1}, pid=2)]
    assert findings(tmp_path, *local)["SP307"].count == 2


def test_async_events_without_an_id(tmp_path):
    found = findings(tmp_path, event("b", 1, cat="c"), event("e", 2, cat="c"), event("n", 1, id=4, cat="c"))
    assert found.keys() == {"SP308"}
    assert found["SP308"].count == 2
