"""A part of the damaged files that `make fuzz` runs all of."""

from __future__ import annotations

import pytest
from fuzz import run_cases
from fuzz_cases import common_prefix, make_case
from fuzz_seeds import SHAPES

CASES = 500


@pytest.mark.timeout(300)
def test_damaged_files_are_read_as_far_as_they_go_or_refused():
    outcomes, failures = run_cases(CASES)
    assert failures == {}
    assert sum(outcomes.values()) == CASES
    assert set(outcomes) == {"merged", "merged with damage", "refused"}


def test_a_case_is_the_same_each_time():
    for number in range(40):
        one, other = make_case(number), make_case(number)
        assert (one.seed.name, one.data, one.how) == (other.seed.name, other.data, other.how)
        assert len(one.data) <= 100_000


def test_every_shape_and_many_kinds_of_damage_are_met():
    cases = [make_case(number) for number in range(CASES)]
    assert len({case.seed.name for case in cases}) >= len(SHAPES) - 2
    assert len({kind for case in cases for kind in case.how}) > 15
    assert any(case.partner for case in cases)


def test_the_part_before_a_change_is_told():
    assert common_prefix(b"abcd", b"abXd") == 2
    assert common_prefix(b"ab", b"abcd") == 2
    assert common_prefix(b"", b"a") == 0
