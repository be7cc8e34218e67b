"""SP2xx: times and clocks of one file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from slime_profiler_plugin.clock import ns_to_decimal_us

from ._events import NO_TIME
from ._rules import Found, file_rule, some
from ._survey import FileSurvey

_HOUR_NS: Final = 3600 * 10**9
#: No trace is that long: a week.
_LONG_NS: Final = 7 * 24 * _HOUR_NS
#: From here on a double keeps microseconds to a quarter: 2005.
_COARSE_NS: Final = 2**50 * 1000


@file_rule("SP201", "Event without a usable time", "error", "fix")
def no_time(survey: FileSurvey) -> Iterator[Found]:
    """No ts, or one that is no number, or beyond 64-bit nanoseconds."""
    events = survey.events
    chosen = np.flatnonzero((events.start == NO_TIME) & (events.phase != 0))
    if len(chosen):
        message = some(len(chosen), "event", "has no usable time", "have no usable time")
        yield Found(len(chosen), message, events.describe(int(chosen[0])))


@file_rule("SP202", "Time is 0 where the others are far from it", "error", "fix")
def zero_time(survey: FileSurvey) -> Iterator[Found]:
    """A record that failed: a viewer begins its time axis there, hours or 50 years early."""
    events, zero = survey.events, survey.failed
    if len(zero):
        starts = events.start[events.timed]
        first = ns_to_decimal_us(int(starts[starts > 0].min()))
        message = some(len(zero), "event", "is at time 0", "are at time 0")
        yield Found(len(zero), f"{message}, the others from {first} us on", events.describe(int(zero[0])))


@file_rule("SP203", "Time is negative", "error", "fix")
def negative_time(survey: FileSurvey) -> Iterator[Found]:
    """Perfetto drops the event."""
    events = survey.events
    chosen = events.timed[events.start[events.timed] < 0]
    if survey.has_given_ids:
        return  # which counts from when its session began, and knows what was going on then
    if len(chosen):
        message = some(len(chosen), "event", "has a negative time", "have negative times")
        yield Found(len(chosen), message, events.describe(int(chosen[0])))


@file_rule("SP204", "Duration is negative", "error", "fix")
def negative_duration(survey: FileSurvey) -> Iterator[Found]:
    """A slice that ends before it begins."""
    events = survey.events
    chosen = np.flatnonzero((events.length < 0) & (events.length != NO_TIME))
    if len(chosen):
        message = some(len(chosen), "event", "has a negative duration", "have negative durations")
        yield Found(
            len(chosen),
            message,
            f"{ns_to_decimal_us(int(events.length[chosen[0]]))} us, {_at(survey, chosen[0])}",
        )


@file_rule("SP205", "Metadata at a negative time", "error", "fix")
def negative_metadata(survey: FileSurvey) -> Iterator[Found]:
    """Perfetto refuses it, and the names of processes and threads are lost."""
    count = survey.events.names.negative
    if count:
        yield Found(count, some(count, "metadata event", "has a negative time", "have negative times"))


@file_rule("SP206", "Unix times with a fraction of a microsecond", "warning", "fix")
def coarse_times(survey: FileSurvey) -> Iterator[Found]:
    """A binary float holds today's Unix time in microseconds to 0.25; so does every viewer."""
    if survey.has_given_ids:
        return  # which is no text: its times are as exact as they were taken
    events = survey.events
    chosen = events.timed[events.start[events.timed] >= _COARSE_NS]
    chosen = chosen[events.start[chosen] % 1000 != 0]
    if len(chosen) and _spread(survey) < _LONG_NS:
        yield Found(
            len(chosen),
            some(len(chosen), "absolute time", "is", "are") + " known to 0.25 us only",
            events.describe(int(chosen[0])),
        )


@file_rule("SP207", "Clock is unknown", "info")
def unknown_clock(survey: FileSurvey) -> Iterator[Found]:
    """Neither a base time nor Unix times: nothing says when this was."""
    if survey.clock == "unknown":
        first = int(survey.events.start[survey.events.timed].min())
        yield Found(
            1,
            "the file has no base time and its times are no Unix times",
            f"from {ns_to_decimal_us(first)} us on",
        )


@file_rule("SP208", "Time or duration is a string", "warning", "fix")
def string_time(survey: FileSurvey) -> Iterator[Found]:
    """Readers differ in what they make of it."""
    count = survey.events.string_times
    if count:
        yield Found(
            count,
            some(count, "time or duration", "is a string")
            if count == 1
            else f"{count} times or durations are strings",
        )


@file_rule("SP209", "Times of one file lie weeks apart", "warning")
def far_apart(survey: FileSurvey) -> Iterator[Found]:
    """Times of two clocks in one file, or damaged ones: what happened is a speck on the time axis."""
    spread = _spread(survey)
    if spread >= _LONG_NS:
        events = survey.events
        timed = events.timed[~np.isin(events.timed, survey.failed)]
        first = int(timed[np.argmin(events.start[timed])])
        days = spread / (24 * _HOUR_NS)
        yield Found(1, f"its events lie up to {days:.0f} days apart", events.describe(first))


def _spread(survey: FileSurvey) -> int:
    """Ns from the first event to the last, records that failed left out."""
    events = survey.events
    starts = events.start[events.timed[~np.isin(events.timed, survey.failed)]]
    return int(starts.max()) - int(starts.min()) if len(starts) else 0


def _at(survey: FileSurvey, event: int) -> str:
    return survey.events.describe(int(event))
