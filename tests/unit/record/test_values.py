"""Fields may be anything, and as large as they like: the line says what it can."""

from __future__ import annotations

from collections import UserString
from fractions import Fraction
from typing import Any

import pytest

from slime_profiler_plugin import schema
from slime_profiler_plugin.record._values import (
    DEPTH,
    MOST_CHARACTERS,
    MOST_ITEMS,
    MOST_OF_ONE_TEXT,
    Values,
    as_text,
)


def attrs(**fields: object) -> dict[str, Any]:
    return Values().attrs(list(fields.items()))


def encoded_bytes(said: dict[str, Any]) -> int:
    line = schema.Phase(id=1, name="x", start_ns=0, dur_ns=0, tid=1, attrs=said)
    return len(schema.encode_lines([line]))


def test_a_list_that_is_too_long_says_what_was_cut_and_costs_no_other_field() -> None:
    said = attrs(tokens=list(range(161_000)), more=[1, 2], after=7)
    assert said == {"tokens": [*range(MOST_ITEMS), "… 160000 more"], "more": ["… 2 more"], "after": 7}


def test_so_does_a_dict() -> None:
    said = attrs(table={n: -n for n in range(5000)})
    assert said == {"table": {**{str(n): -n for n in range(MOST_ITEMS)}, "…": "4000 more"}}


def test_so_do_texts() -> None:
    said = attrs(**dict.fromkeys("abcde", "é" * (MOST_OF_ONE_TEXT + 9)), k={"x" * 103: ""})
    whole = MOST_CHARACTERS // MOST_OF_ONE_TEXT
    assert list(said.values())[:whole] == ["é" * MOST_OF_ONE_TEXT + "… 9 more"] * whole
    assert said["e"] == f"… {MOST_OF_ONE_TEXT + 9} more"
    assert said["k"] == {"x" * 100 + "… 3 more": ""}


def test_a_list_in_itself_is_bounded() -> None:
    inside: list[Any] = []
    inside += [inside] * 200
    said = attrs(loop=inside)
    assert encoded_bytes(said) < 40_000

    def count(value: object) -> int:
        return sum(map(count, value)) + len(value) if isinstance(value, list) else 0

    # What was cut is said in each of the lists that are not whole.
    assert MOST_ITEMS < count(said["loop"]) <= MOST_ITEMS + DEPTH


def test_many_fields_are_bounded_too() -> None:
    said = attrs(**{f"f{n}": n for n in range(3000)})
    assert len(said) == MOST_ITEMS + 1
    assert said["…"] == "2000 more"


def test_control_characters_do_not_make_it_much_larger() -> None:
    assert encoded_bytes(attrs(text="\x01" * 10**6)) < 6 * MOST_OF_ONE_TEXT + 200


class Failing:
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise ReferenceError("gone")


class Changing(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError("dictionary changed size during iteration")


class Told(str):
    def __str__(self) -> str:
        raise AssertionError("a text was converted by its own method")

    def isascii(self) -> bool:
        raise AssertionError("a text was asked")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Changing(a=1), "<Changing>"),
        (-(2**70), str(-(2**70))),
        (Fraction(10) ** 400, "<Fraction>"),
        (UserString("x"), "<UserString>"),
        ([1, Changing(), 2], [1, "<Changing>", 2]),
        ({"a": Changing(), "\ud800": [()]}, {"a": "<Changing>", "?": [[]]}),
    ],
)
def test_one_value_costs_no_other(value: object, said: object) -> None:
    assert attrs(before=1, value=value, after=2) == {"before": 1, "value": said, "after": 2}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("\ud800é", "?é"),
        (None, "None"),
        (True, "True"),
        (7, "7"),
        (1.5, "1.5"),
        (("a", 1), "<tuple>"),
    ],
)
def test_names(name: object, text: str) -> None:
    assert as_text(name) == text


def test_what_cannot_be_asked_for_its_type() -> None:
    assert attrs(value=[1, Failing()]) == {"value": [1, "<Failing>"]}
    assert as_text(Failing()) == "<Failing>"


def test_a_text_with_methods_of_its_own() -> None:
    said = attrs(value=Told("text"))["value"]
    assert (type(said), said) == (str, "text")


def test_a_number_that_python_refuses_to_say() -> None:
    assert attrs(value=10**5000) == {"value": "<int of 16610 bits>"}
    assert as_text(10**5000) == "<int of 16610 bits>"
