"""SP4xx: the text of a file, and what it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ._rules import Found, file_rule, some
from ._survey import FileSurvey
from ._text import Fault


@file_rule("SP401", "File is no trace", "error")
def no_trace(survey: FileSurvey) -> Iterator[Found]:
    """What it is instead, where that can be told."""
    if survey.refused is not None:
        yield Found(1, survey.refused)


@file_rule("SP402", "File is cut off", "error", "fix")
def cut_off(survey: FileSurvey) -> Iterator[Found]:
    """Its end is missing."""
    told = [damage for damage in survey.damage if damage.kind == "truncated"]
    if told:
        yield Found(1, f"the end is missing: {told[-1].reason}")


@file_rule("SP403", "Event cannot be decoded", "error", "fix")
def corrupt_event(survey: FileSurvey) -> Iterator[Found]:
    """Text that is no JSON, or gzip data that is damaged."""
    told = [damage for damage in survey.damage if damage.kind == "corrupt"]
    if told:
        count = sum(max(damage.lost, 1) for damage in told)
        yield Found(count, some(count, "place", "cannot be read", "cannot be read"), told[0].reason)


@file_rule("SP404", "Trace is empty", "warning")
def empty(survey: FileSurvey) -> Iterator[Found]:
    """No event but metadata."""
    if survey.trace is not None and not len(survey.events):
        yield Found(1, f"no events but {survey.total} of metadata" if survey.total else "no events")


@file_rule("SP405", "Number is not finite", "error", "fix")
def not_finite(survey: FileSurvey) -> Iterator[Found]:
    """NaN and Infinity are no JSON: strict readers refuse the whole file."""
    yield from _of(survey.text.not_finite, "number", "is not finite", "are not finite")


@file_rule("SP406", "Escape that JSON does not have", "error", "fix")
def bad_escape(survey: FileSurvey) -> Iterator[Found]:
    r"""A ``\q``; a Windows path, mostly."""
    yield from _of(survey.text.escapes, "escape", "is none that JSON has", "are none that JSON has")


@file_rule("SP407", "Control character in a string", "error", "fix")
def control_character(survey: FileSurvey) -> Iterator[Found]:
    """Strict readers refuse the whole file."""
    yield from _of(
        survey.text.controls, "control character", "stands raw in a string", "stand raw in strings"
    )


@file_rule("SP408", "Text is not UTF-8", "error", "fix")
def not_utf8(survey: FileSurvey) -> Iterator[Found]:
    """Bytes that are no text."""
    yield from _of(survey.text.not_utf8, "byte", "is not UTF-8", "are not UTF-8")


@file_rule("SP409", "String ends in a backslash", "error", "fix")
def ends_in_backslash(survey: FileSurvey) -> Iterator[Found]:
    """Valid, but Perfetto v52 takes the closing quotation mark for an escaped one."""
    yield from _of(survey.text.backslashes, "string", "ends in a backslash", "end in a backslash")


@file_rule("SP410", "Key stands twice in one object", "warning")
def duplicate_key(survey: FileSurvey) -> Iterator[Found]:
    """Readers keep the first, the last, or refuse."""
    yield from _of(survey.text.duplicate_keys, "key", "stands twice", "stand twice")


@file_rule("SP411", "Event without a phase letter", "error", "fix")
def no_phase(survey: FileSurvey) -> Iterator[Found]:
    """No ph: no viewer shows it."""
    events = survey.events
    chosen = np.flatnonzero(events.phase == 0)
    if len(chosen):
        message = some(len(chosen), "event", "has no ph", "have no ph")
        yield Found(len(chosen), message, events.describe(int(chosen[0])))


@file_rule("SP412", "Integer is too large to be kept", "warning")
def large_integer(survey: FileSurvey) -> Iterator[Found]:
    """Beyond 2⁵³ and no double, or beyond 2⁶³: readers round it, or it becomes negative."""
    yield from _of(
        survey.text.large_integers, "integer", "is too large to be kept", "are too large to be kept"
    )


@file_rule("SP413", "Comma before a closing bracket", "error", "fix")
def trailing_comma(survey: FileSurvey) -> Iterator[Found]:
    """Strict readers refuse the whole file."""
    yield from _of(survey.text.trailing_commas, "comma", "stands before an end", "stand before an end")


@file_rule("SP414", "File cannot be read", "error")
def unreadable(survey: FileSurvey) -> Iterator[Found]:
    """It is not there, or may not be read."""
    if survey.unreadable is not None:
        yield Found(1, survey.unreadable)


@file_rule("SP415", "Phase letter is unknown", "warning")
def unknown_phase(survey: FileSurvey) -> Iterator[Found]:
    """Viewers leave the event out."""
    events = survey.events
    chosen = np.flatnonzero(events.phase == 255)
    if len(chosen):
        message = some(len(chosen), "event", "has a ph", "have a ph") + " that no viewer knows"
        yield Found(len(chosen), message, events.describe(int(chosen[0])))


def _of(fault: Fault, noun: str, verb: str, plural_verb: str) -> Iterator[Found]:
    if fault.count:
        yield Found(fault.count, some(fault.count, noun, verb, plural_verb), str(fault))
