"""What the first reading keeps of events: exact times, which track, which flow."""

import math
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from slime_profiler_plugin.merge._columns import Columns
from slime_profiler_plugin.merge._exact_times import parse_times
from slime_profiler_plugin.merge._flows import number_flows
from slime_profiler_plugin.merge._track_names import plain_track
from slime_profiler_plugin.read import TraceEvent


def expected(text):
    if text is UNSET:
        return None
    try:
        value = Decimal(bytes(text).strip(b'"').decode())
    except InvalidOperation:
        return None
    if not value.is_finite():
        return None
    with localcontext() as context:
        context.prec = 1000
        whole = int((value * 1000).to_integral_value(ROUND_HALF_UP))
    return max(1 - 2**63, min(whole, 2**63 - 1))  # what is beyond the clock stays so


def check(texts):
    times = parse_times(texts)
    wanted = [expected(text) for text in texts]
    assert times.are_known.tolist() == [value is not None for value in wanted]
    assert times.values.tolist() == [value or 0 for value in wanted]
    return times


plain = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.tuples(st.integers(-(10**17), 10**17), st.integers(0, 999)).map(lambda t: f"{t[0]}.{t[1]:03d}"),
    st.tuples(st.integers(-(10**5), 10**16).map(str), st.text("0123456789", min_size=1, max_size=12)).map(
        ".".join
    ),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["0", "-0", "-0.5", "1e3", "1.5E-2", "-2e+4", "1e400"]),
)
odd = st.sampled_from(["NaN", "null", '""', '"soon"', "true", "[1]", "{}", "Infinity"])
texts = st.one_of(plain, plain.map('"{}"'.format), odd).map(lambda text: Raw(text.encode()))


@given(st.lists(st.one_of(texts, st.just(UNSET)), max_size=8))
def test_times_of_any_form_are_exact_and_what_is_none_is_unknown(given_texts):
    check(given_texts)


@given(st.lists(st.tuples(st.integers(-(10**13), 10**13), st.integers(0, 3)), min_size=1, max_size=20))
def test_plain_times_are_recognised_as_such(numbers):
    spelled = [Raw(f"{value / 10**places:.{places}f}".encode()) for value, places in numbers]
    assert check(spelled).are_plain


@pytest.mark.parametrize("digits", range(1, 24))
@pytest.mark.parametrize("decimals", range(5))
def test_no_count_of_digits_wraps_around(digits, decimals):
    text = "9" * digits + ("." + "9" * decimals if decimals else "")
    check([Raw(text.encode()), Raw(b"1.5")])
    check([Raw(b"-" + text.encode())])


def test_nothing_and_only_unset():
    assert parse_times([]).values.tolist() == []
    assert parse_times([UNSET]).are_known.tolist() == [False]


def columns_of(events, pieces=1):
    columns = Columns(plain_track)
    size = max(math.ceil(len(events) / pieces), 1)
    for first in range(0, len(events), size):
        columns.add(events[first : first + size])
    columns.close()
    return columns


def test_a_thread_in_quotes_is_the_thread_and_the_absent_one_is_another():
    events = [TraceEvent(ph="X", pid=pid, tid=tid) for pid, tid in ((1, 123), ("1", "123"), (1, None))]
    events += [
        TraceEvent(ph="X", pid=1),
        TraceEvent(ph="X", pid=1, tid="main"),
        TraceEvent(ph="X", pid=-1, tid=-1),
    ]
    events += [TraceEvent(ph="X", pid=1, tid="-7"), TraceEvent(ph="X", pid=1, tid=-7)]
    columns = columns_of(events, pieces=2)
    assert columns.tracks.tolist() == [0, 0, 1, 1, 2, 3, 4, 4]
    assert columns.track_keys == [(1, 123), (1, None), (1, "main"), (-1, -1), (1, -7)]


def test_a_thread_of_thousands_of_digits_is_a_thread():
    tid = "1" * 5000
    assert columns_of([TraceEvent(ph="X", pid=1, tid=tid)]).track_keys == [(1, tid)]


def keys_of(events):
    flows = columns_of(events, pieces=2).flows
    return flows.keys.tolist()


def flow(number=UNSET, cat=b'"a"', **more):
    return TraceEvent(ph="s", cat=Raw(cat), id=number, more=more or UNSET)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (flow(7), flow(7), True),
        (flow(7), flow("7"), True),
        (flow(7), flow(8), False),
        (flow(7), flow(7, b'"b"'), False),
        (flow(2**62), flow(2**62), True),
        (flow(2**62), flow(2**62 + 1), False),
        (flow(2**70), flow(2**70), True),
        (flow(2**70), flow(2**70 + 1), False),
        (flow(-3), flow(-3), True),
        (flow(-1), flow("x"), False),
        (flow("0xff"), flow("0xff"), True),
        (flow("0xff"), flow("0xfe"), False),
        (flow(), flow(), True),
        (flow(id2={"global": 1}), flow(id2={"global": 1}), True),
        (flow(id2={"global": 1}), flow(id2={"global": 2}), False),
    ],
)
def test_flows_are_of_one_key_by_category_and_id(one, other, same):
    first, second = keys_of([one, other])
    assert (first == second) == same


def test_columns_of_nothing():
    columns = columns_of([])
    assert columns.count == 0
    assert len(columns.flows.keys) == len(columns.asyncs.keys) == len(columns.tracks) == 0
    flows = columns.flows
    assert number_flows(flows.keys, np.zeros(0, np.int64), flows.kinds, flows.names).highest == 0
