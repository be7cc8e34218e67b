"""Failures of ours end in the guard; the program's own endings do not."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from slime_profiler_plugin.record._drops import Drops
from slime_profiler_plugin.record._guard import Guard, describe


def fail(error: BaseException) -> None:
    raise error


def test_a_part_that_fails_is_off_with_one_warning_and_one_drop(caplog: pytest.LogCaptureFixture) -> None:
    drops = Drops()
    guard = Guard(drops)
    assert guard.call("windows", lambda: 3) == 3
    for _ in range(3):
        assert guard.call("windows", fail, ValueError("no")) is None
    with guard("windows"):
        fail(KeyError("again"))
    assert guard.call("nvtx", lambda: 4) == 4
    assert guard.disabled("windows")
    assert not guard.disabled("nvtx")
    assert [(d.what, d.reason, d.count) for d in drops.take()] == [("windows", "ValueError: no", 1)]
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("slime_profiler_plugin", logging.WARNING)
    assert "windows" in record.getMessage()
    assert "ValueError: no" in record.getMessage()


def test_a_part_that_is_off_is_not_called() -> None:
    guard = Guard(Drops())
    guard.failed("windows", "said so")
    assert guard.call("windows", fail, AssertionError("called")) is None


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_endings_of_the_program_pass(ending: type[BaseException]) -> None:
    drops = Drops()
    guard = Guard(drops)
    with pytest.raises(ending):
        guard.call("windows", fail, ending())
    with pytest.raises(ending), guard("windows"):
        fail(ending())
    assert not guard.disabled("windows")
    assert not drops.take()


def test_descriptions_are_one_short_line() -> None:
    assert describe(ValueError("a\n b")) == "ValueError: a b"
    assert describe(KeyError()) == "KeyError"
    assert len(describe(ValueError("x" * 10_000))) == 500
    assert describe(OSError(2, "No such file", "a")) == "FileNotFoundError: [Errno 2] No such file: 'a'"
    assert describe(KeyError("step")) == "KeyError: step"
    assert describe(ValueError(7, None, True, 0.5)) == "ValueError: (7, None, True, 0.5)"


class Printed(list[int]):
    """A large value that must not be printed."""

    def __str__(self) -> str:
        raise AssertionError("printed")

    __repr__ = __str__


class WithTextError(Exception):
    def __str__(self) -> str:
        raise AssertionError("called")


class WithArgumentsError(Exception):
    @property
    def args(self) -> Any:
        raise AssertionError("called")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad", Printed()), "ValueError"),
        (ValueError(Printed()), "ValueError"),
        (ValueError(10**5000), "ValueError"),
        (ValueError(*range(100)), "ValueError"),
        (WithTextError("reward", 3), "WithTextError: reward, 3"),
        (WithTextError(Printed()), "WithTextError"),
        (WithArgumentsError("reward"), "WithArgumentsError: reward"),
    ],
)
def test_nothing_of_the_program_s_is_printed_for_a_description(error: Exception, text: str) -> None:
    assert describe(error) == text


def test_only_parts_that_end_are_said_to_be_off(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard(Drops())
    guard.failed("nvtx", ValueError("no"))
    guard.failed("phase", ValueError("no"))
    with guard("flush"):
        raise ValueError("no")
    assert [record.getMessage() for record in caplog.records] == [
        "slime_profiler_plugin: nvtx is off from now on: ValueError: no",
        "slime_profiler_plugin: phase failed: ValueError: no",
        "slime_profiler_plugin: flush failed: ValueError: no",
    ]
