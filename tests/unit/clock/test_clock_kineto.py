"""Decimal microseconds to integer nanoseconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_profiler_plugin.clock import decimal_us_to_ns, kineto_unix_ns


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        (b"5115426478563.779", 5115426478563779),  # relative to a base, as torch 2.13 writes it
        (b"1623143089861", 1623143089861000),  # absolute integers of older versions
        (b"1712174331488.14306640625", 1712174331488143),  # a float without a base
        (b"0.0004", 0),
        (b"0.0005", 1),
        (b"-1.5", -1500),
        (b"-0.001", -1),
        (b"1e3", 1_000_000),
        (b"12.5E-1", 1250),
        (b"7", 7000),
        (b"1234567890123456789.001", 1234567890123456789001),
    ],
)
def test_microseconds_become_exact_nanoseconds(text, ns):
    assert decimal_us_to_ns(text) == ns


@pytest.mark.parametrize(
    "text", [b"", b"abc", b"NaN", b"1.2.3", b"null", b'"5"', b"1e99999", b"a.123", b"--1.000"]
)
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match=r"number|range"):
        decimal_us_to_ns(text)


@given(st.integers(0, 2**63))
def test_every_nanosecond_survives(ns):
    assert decimal_us_to_ns(b"%d.%03d" % divmod(ns, 1000)) == ns


def test_base_is_added_and_absence_means_absolute():
    assert kineto_unix_ns(5, 1_790_857_026_000_000_000) == 1_790_857_026_000_000_005
    assert kineto_unix_ns(1_623_143_089_861_000, None) == 1_623_143_089_861_000
