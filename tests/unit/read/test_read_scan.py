"""Where a value ends, by its marks alone: at any depth, and where marks lie far apart."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_profiler_plugin.read._scan import ScanError, structure_end, value_end

_VALUES = st.recursive(
    st.text(alphabet='a"\\[]{} ') | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='b"]}'), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(_VALUES, max_size=5), st.text(alphabet=' ,]}x"', max_size=8))
def test_the_end_of_a_value_is_where_the_json_parser_finds_it(value: list[object], behind: str) -> None:
    text = json.dumps(value)
    assert structure_end(text + behind, 0) == value_end(text + behind, 0) == len(text)


@pytest.mark.parametrize("gap", [0, 1, 4095, 4096, 4097, 12_287, 12_288, 12_289, 1_000_000])
def test_marks_may_lie_far_apart(gap: int) -> None:
    space = " " * gap
    text = f'[{space}{{"a"{space}:{space}"]{space}}}"{space}}}{space}]'
    assert structure_end(text + "]", 0) == len(text)


def test_a_value_ends_with_the_bracket_that_closes_it_among_others() -> None:
    assert structure_end("[[[]]]]]", 0) == 6
    assert structure_end('"a]",', 0) == 4


def test_a_value_without_an_end_is_open() -> None:
    with pytest.raises(ScanError) as told:
        structure_end("[" + " " * 100_000, 0)
    assert told.value.is_open
    assert told.value.position == 100_001
