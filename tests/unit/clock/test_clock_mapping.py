"""One monotonic clock in terms of Unix time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_profiler_plugin.clock import ClockMapping, ClockPair, PairFolder

S = 1_000_000_000
OFFSET = 1_795_000_000 * S


def pair(mono, offset=OFFSET, error=50, wrong_by=0):
    return ClockPair(mono, mono + offset + wrong_by, error)


def test_one_pair_maps_every_time_by_its_offset():
    mapping = ClockMapping([pair(10 * S)])
    assert mapping.unix_ns(0) == OFFSET
    assert mapping.unix_ns(99 * S) == OFFSET + 99 * S
    assert mapping.mono_ns(OFFSET + 3) == 3
    assert mapping.error_ns(12 * S) == 50


def test_no_pair_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        ClockMapping([])


def test_jitter_within_the_stated_error_is_taken_out():
    pairs = [pair(i * S, wrong_by=(-40, 0, 40)[i % 3]) for i in range(30)]
    mapping = ClockMapping(pairs)
    assert len(mapping.pieces) == 1
    # The bounds are [-90, 10], [-50, 50] and [-10, 90]: what they share is [-10, 10].
    assert mapping.unix_ns(7 * S + 1) == OFFSET + 7 * S + 1
    assert mapping.error_ns(7 * S) == 10


def test_slew_between_pairs_is_a_line():
    mapping = ClockMapping([pair(0), pair(100 * S, OFFSET + 1_000_000)])
    assert mapping.steps == []
    assert mapping.unix_ns(50 * S) == OFFSET + 50 * S + 500_000
    assert mapping.mono_ns(OFFSET + 50 * S + 500_000) == 50 * S
    assert mapping.unix_ns(101 * S) == OFFSET + 101 * S + 1_000_000


def test_step_forward_is_placed_at_the_first_pair_that_shows_it():
    mapping = ClockMapping(
        [pair(0), pair(10 * S), pair(11 * S, OFFSET + 3 * S), pair(12 * S, OFFSET + 3 * S)]
    )
    assert [(step.mono_ns, step.step_ns) for step in mapping.steps] == [(11 * S, 3 * S)]
    assert mapping.unix_ns(10 * S + 5) == OFFSET + 10 * S + 5
    assert mapping.unix_ns(11 * S) == OFFSET + 14 * S
    assert mapping.mono_ns(OFFSET + 9 * S) == 9 * S
    assert mapping.mono_ns(OFFSET + 15 * S) == 12 * S
    # A second that the wall clock never showed becomes the step itself.
    assert mapping.mono_ns(OFFSET + 12 * S) == 11 * S - 1
    assert mapping.error_ns(10 * S + 5) >= 3 * S


def test_step_back_makes_a_time_pass_twice_and_nearness_decides():
    mapping = ClockMapping(
        [pair(0), pair(10 * S), pair(11 * S, OFFSET - 4 * S), pair(20 * S, OFFSET - 4 * S)]
    )
    unix = OFFSET + 9 * S
    assert mapping.mono_ns(unix) == 9 * S
    assert mapping.mono_ns(unix, near_ns=8 * S) == 9 * S
    assert mapping.mono_ns(unix, near_ns=14 * S) == 13 * S
    # What was shown once has one answer, however far the hint.
    assert mapping.mono_ns(OFFSET + 2 * S, near_ns=19 * S) == 2 * S
    assert mapping.mono_ns(OFFSET + 15 * S, near_ns=0) == 19 * S


def test_constant_offset_is_known_where_it_holds():
    mapping = ClockMapping([pair(0), pair(10 * S), pair(110 * S, OFFSET + 1_000_000)])
    assert mapping.constant_offset(-5, 10 * S) == OFFSET
    assert mapping.constant_offset(0, 10 * S + 1) is None
    assert mapping.constant_offset(20 * S, 30 * S) is None
    assert mapping.constant_offset(110 * S, 10**6 * S) == OFFSET + 1_000_000


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 500), st.integers(-300, 300)), min_size=1))
def test_folded_pairs_make_the_same_mapping(reads):
    pairs = sorted(ClockPair(mono, OFFSET + mono + wrong, error) for mono, error, wrong in reads)
    folder = PairFolder()
    for each in pairs:
        folder.add(each)
    assert folder.pieces() == ClockMapping(pairs).pieces
    assert len(folder.pairs()) <= 2 * len(folder.pieces())


def test_folding_keeps_two_pairs_of_any_number_that_agree():
    folder = PairFolder()
    for second in range(1000):
        folder.add(pair(second * S))
    assert folder.pairs() == [pair(0), pair(999 * S)]


@given(
    st.lists(st.tuples(st.integers(0, 10**14), st.integers(0, 10_000)), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
    st.integers(-(10**15), 2 * 10**18),
)
def test_constant_clock_is_found_within_the_stated_error(reads, random, offset):
    pairs = [pair(mono, offset, error, random.randint(-error, error)) for mono, error in reads]
    mapping = ClockMapping(pairs)
    assert len(mapping.pieces) == 1
    for mono, _ in reads:
        assert abs(mapping.unix_ns(mono) - mono - offset) <= mapping.error_ns(mono)
        assert mapping.mono_ns(mapping.unix_ns(mono)) == mono


@given(
    st.lists(st.integers(1, 3600), min_size=1, max_size=20),
    st.lists(st.integers(-500_000, 500_000), min_size=20, max_size=20),
    st.lists(st.integers(0, 10**13), max_size=20),
)
def test_slewed_clock_round_trips_and_never_runs_backwards(gaps_s, slews_ppb, times):
    mono, unix = 0, OFFSET
    pairs = [ClockPair(mono, unix, 20)]
    for gap, slew in zip(gaps_s, slews_ppb, strict=False):
        mono += gap * S
        unix += gap * S + gap * slew
        pairs.append(ClockPair(mono, unix, 20))
    mapping = ClockMapping(pairs)
    assert mapping.steps == []
    last = None
    for time in sorted([*times, *(p.mono_ns for p in pairs)]):
        there = mapping.unix_ns(time)
        assert last is None or there >= last
        last = there
        assert abs(mapping.mono_ns(there) - time) <= 1
    for p in pairs:
        assert abs(mapping.unix_ns(p.mono_ns) - p.unix_ns) <= 20
