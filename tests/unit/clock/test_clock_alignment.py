"""Clock domains on one of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_profiler_plugin.clock import (
    ASSUMED_WALL_CLOCK,
    NO_CLOCK_PAIRS,
    SAME_CLOCK,
    ClockMapping,
    ClockPair,
    align_domains,
    convert_span,
)

S = 1_000_000_000
UNIX = 1_795_000_000 * S


def mapping(offset, *monos):
    return ClockMapping([ClockPair(mono, mono + offset, 100) for mono in monos or (0,)])


def test_reference_domain_has_offset_zero_whatever_its_pairs_say():
    aligned = align_domains({"a": mapping(UNIX)}, "a")["a"]
    assert aligned.basis == SAME_CLOCK
    assert aligned.to_reference(123) == 123


def test_other_domain_stands_where_its_wall_clock_puts_it():
    aligned = align_domains({"a": mapping(UNIX), "b": mapping(UNIX - 7 * S)}, "a")["b"]
    assert aligned.basis == ASSUMED_WALL_CLOCK
    assert aligned.to_reference(10 * S) == 3 * S
    assert aligned.unix_to_reference(UNIX + 3 * S) == 3 * S


def test_domain_without_pairs_says_so():
    aligned = align_domains({"a": mapping(UNIX), "b": None}, "a")["b"]
    assert aligned.basis == NO_CLOCK_PAIRS
    with pytest.raises(ValueError, match="clock domain b has no"):
        aligned.unix_to_reference(UNIX)


def test_span_over_a_step_keeps_its_measured_length():
    stepped = ClockMapping([ClockPair(0, UNIX, 1), ClockPair(10 * S, UNIX + 5 * S, 1)])
    assert convert_span(stepped.unix_ns, 9 * S, 11 * S) == (UNIX + 9 * S, UNIX + 11 * S)


@given(
    st.lists(st.tuples(st.integers(0, 10**13), st.integers(0, 10**12)), min_size=2, max_size=20),
    st.integers(-1000, 1000),
)
def test_what_nests_still_nests_on_another_clock(spans, ppm):
    steady = mapping(UNIX)
    slewed = ClockMapping([ClockPair(0, UNIX, 1), ClockPair(10**14, UNIX + 10**14 + 10**8 * ppm, 1)])
    aligned = align_domains({"a": steady, "b": slewed}, "a")["b"]
    for start, length in spans:
        outer = aligned.span_to_reference(start, start + length)
        inner = aligned.span_to_reference(start + length // 3, start + length - length // 3)
        assert outer[0] <= inner[0] <= inner[1] <= outer[1]
