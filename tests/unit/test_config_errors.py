"""An error names source, key path, value and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slime_profiler_plugin.config import ConfigError, Stride, load_config, selects_rank


def message(source: Any, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(source, environ or {})
    return str(caught.value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"profiler": {"schedule": {"active": 0}}},
            "profiler.schedule.active: 0 is not allowed; allowed: a whole number >= 1",
        ),
        (
            {"profiler": {"schedule": {"wait": -1}}},
            "profiler.schedule.wait: -1 is not allowed; allowed: a whole number >= 0",
        ),
        (
            {"profiler": {"schedule": {"active": 1.5}}},
            "profiler.schedule.active: 1.5 is not allowed; allowed: a whole number",
        ),
        (
            {"profiler": {"schedule": {"active": True}}},
            "profiler.schedule.active: True is not allowed; allowed: a whole number",
        ),
        (
            {"profiler": {"schedule": 3}},
            "profiler.schedule: 3 is not allowed; allowed: keys with values (wait, warmup, active,",
        ),
        (
            {"profiler": {"with_stack": "yes"}},
            "profiler.with_stack: 'yes' is not allowed; allowed: true or false",
        ),
        (
            {"profiler": {"max_bytes": 0}},
            "profiler.max_bytes: 0 is not allowed; allowed: a whole number >= 1",
        ),
        (
            {"records": {"period_s": 0}},
            "records.period_s: 0 is not allowed; allowed: a number > 0.0",
        ),
        (
            {"records": {"period_s": float("inf")}},
            "records.period_s: inf is not allowed; allowed: a number <= 3600.0",
        ),
        ({"out": ""}, "out: '' is not allowed; allowed: text of length >= 1"),
        ({"out": 7}, "out: 7 is not allowed; allowed: text"),
        (
            {"outputs": None},
            "outputs: None is not allowed; allowed: keys with values (records, record_function,",
        ),
        ({"profiler": [1]}, "profiler: [1] is not allowed; allowed: keys with values (schedule, ranks,"),
        (
            {"profiler": {"ranks": {"stride": 0}}},
            "profiler.ranks.stride: 0 is not allowed; allowed: a whole number >= 1",
        ),
        ({"profiler": {"ranks": {"offset": 1}}}, "profiler.ranks: the key stride is missing"),
        (
            {"profiler": {"ranks": {"stride": 2, "ofset": 1}}},
            "unknown key profiler.ranks.ofset, did you mean 'offset'?; allowed: profiler.ranks.stride,",
        ),
        (
            {"profler": {}},
            "unknown key profler, did you mean 'profiler'?; allowed: out, outputs, records, profiler",
        ),
        ({3: 4}, "unknown key 3; allowed: out,"),
    ],
)
def test_settings(settings: dict[Any, Any], expected: str) -> None:
    assert message(settings).startswith(f"settings: {expected}")


@pytest.mark.parametrize("ranks", ["second", [], [1, 1], [-1], [0, "1"], 3, None, True])
def test_ranks(ranks: object) -> None:
    assert message({"profiler": {"ranks": ranks}}) == (
        f"settings: profiler.ranks: {ranks!r} is not allowed; "
        "allowed: all, first, last, a list of different ranks >= 0, or {stride: N, offset: N}"
    )


@pytest.mark.parametrize("roles", [[], ["actor", "actor"], ["Actor"], "actor"])
def test_roles(roles: object) -> None:
    assert message({"profiler": {"roles": roles}}) == (
        f"settings: profiler.roles: {roles!r} is not allowed; "
        "allowed: a list of different role names in snake_case, at least one"
    )


@pytest.mark.parametrize("activities", [[], ["gpu"], ["cpu", "cpu"], "cpu"])
def test_activities(activities: object) -> None:
    text = message({"profiler": {"activities": activities}})
    assert text.startswith(f"settings: profiler.activities: {activities!r} is not allowed; allowed: a list")
    assert "cpu, cuda, xpu" in text


def test_a_name_that_is_not_shipped() -> None:
    assert message("kernel") == (
        "no shipped configuration is called 'kernel', did you mean 'kernels'?; allowed: everything, kernels, "
        "nsys, timeline, off, or the path of a file (with a / or ending in .yaml)"
    )


def test_the_environment_is_named() -> None:
    assert message(None, {"SLIME_PROFILER": "kernel"}).startswith(
        "environment variable SLIME_PROFILER: no shipped configuration is called 'kernel'"
    )
    assert message(None, {"SLIME_COMMUNICATION_TIMELINE": "yes"}) == (
        "environment variable SLIME_COMMUNICATION_TIMELINE: 'yes' is not allowed; allowed: 0, 1"
    )


@pytest.mark.parametrize("source", [None, "timeline", {"out": "given"}, "off"])
def test_a_switch_that_may_be_a_mistyped_off_is_not_beaten(source: Any) -> None:
    assert message(source, {"SLIME_PROFILER": "kernals"}) == (
        "environment variable SLIME_PROFILER: no shipped configuration is called 'kernals', "
        "did you mean 'kernels'?; allowed: everything, kernels, nsys, timeline, off, "
        "or the path of a file (with a / or ending in .yaml)"
    )
    assert "did you mean 'off'?" in message(source, {"SLIME_PROFILER": "of"})


def test_a_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("profiler: {schedule: {active: none}}\n")
    expected = f"{file}: profiler.schedule.active: 'none' is not allowed; allowed: a whole number"
    assert message(file) == message(str(file)) == expected
    assert message(None, {"SLIME_PROFILER": str(file)}) == f"environment variable SLIME_PROFILER: {expected}"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"out: a\nrecords: {}\nout: b\n", "not valid YAML: key 'out' stands twice, in lines 1 and 3"),
        (b"out: [", "not valid YAML: line 1: "),
        (b"- out\n", "the file holds a list, not settings; allowed: keys with values"),
        (
            b"out: !!python/object/apply:os.getcwd []\n",
            "not valid YAML: line 1: could not determine a constructor",
        ),
        (b"out: \xff\n", "not UTF-8 text: invalid start byte at byte 5"),
        (b"? [a]\n: b\n", "not valid YAML: line 1: found unhashable key"),
    ],
)
def test_files_that_hold_no_settings(content: bytes, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    assert message(file).startswith(f"{file}: {expected}")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    assert message(missing) == f"{missing}: cannot be read: No such file or directory"
    assert message(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"


def test_a_source_of_another_kind() -> None:
    assert message(7) == "configuration: 7 is a int; allowed: a shipped name, a path, settings"


@pytest.mark.parametrize(
    ("ranks", "chosen"),
    [
        ("all", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("first", [0]),
        ("last", [7]),
        ((1, 5, 40), [1, 5]),
        (Stride(stride=3), [0, 3, 6]),
        (Stride(stride=3, offset=2), [2, 5]),
    ],
)
def test_selects_rank(ranks: Any, chosen: list[int]) -> None:
    assert [r for r in range(8) if selects_rank(ranks, r, 8)] == chosen


def test_an_unknown_rank_or_world_is_not_guessed() -> None:
    assert selects_rank("all", None, None)
    assert not selects_rank("first", None, None)
    assert not selects_rank("last", 0, None)
    assert not selects_rank(Stride(stride=1), None, 4)
