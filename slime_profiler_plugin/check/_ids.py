"""SP3xx: ids, and the arrows that they make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ._events import FINE, LARGE_ID, NO_ID, NO_INTEGER, NO_TIME, Events
from ._rules import Found, file_rule, some
from ._survey import FileSurvey

Array = NDArray[Any]

_PROBLEMS: Final = {
    NO_INTEGER: "no integer",
    LARGE_ID: "not within 0 and 2^63",
    NO_ID: "missing",
}


@file_rule("SP301", "Flow id is used again", "error", "fix")
def reused_flow(survey: FileSurvey) -> Iterator[Found]:
    """Two starts with one id (and category): arrows lead to the wrong slices, or vanish."""
    events = survey.events
    flows = _Flows(events)
    starts = flows.index[flows.is_start]
    _, first, counts = np.unique(flows.key[flows.is_start], return_index=True, return_counts=True)
    reused = np.flatnonzero(counts > 1)
    if len(reused):
        yield Found(
            len(reused),
            some(len(reused), "flow id", "starts more than one arrow", "start more than one arrow each"),
            events.describe(int(starts[first[reused]].min())),
        )


@file_rule("SP302", "Flow end without a start", "warning")
def end_without_start(survey: FileSurvey) -> Iterator[Found]:
    """The start lies outside of what was recorded, or has another id or category: no arrow."""
    flows = _Flows(survey.events)
    lonely = flows.index[~flows.is_start & ~np.isin(flows.key, flows.key[flows.is_start])]
    yield from _some(survey.events, lonely, "flow end", "has no start", "have no start")


@file_rule("SP303", "Flow start without an end", "warning")
def start_without_end(survey: FileSurvey) -> Iterator[Found]:
    """No arrow is drawn."""
    flows = _Flows(survey.events)
    lonely = flows.index[flows.is_start & ~np.isin(flows.key, flows.key[~flows.is_start])]
    yield from _some(survey.events, lonely, "flow start", "has no end", "have no end")


@file_rule("SP304", "Flow id is no integer that viewers take", "error", "fix")
def odd_flow_id(survey: FileSurvey) -> Iterator[Found]:
    """A string, a fraction, 2⁶³ or more, negative, or none: Perfetto draws no arrow."""
    flows = survey.events.flows
    odd = np.flatnonzero(flows.problem != FINE)
    if len(odd):
        problem = _PROBLEMS[int(flows.problem[odd[0]])]
        yield Found(
            len(odd),
            some(len(odd), "flow event", "has an id that is", "have an id that is")
            + " no integer below 2^63",
            f"it is {problem}: {survey.events.describe(int(flows.index[odd[0]]))}",
        )


@file_rule("SP305", "Flow event outside of any slice", "error")
def flow_outside(survey: FileSurvey) -> Iterator[Found]:
    """An arrow leads from slice to slice; where none is open another one is taken, or the arrow is lost."""
    events = survey.events
    flows = events.flows
    chosen = flows.index[flows.encloses & np.isin(events.phase[flows.index], [ord("s"), ord("f")])]
    chosen = chosen[events.start[chosen] != NO_TIME]
    outside = chosen[~_inside_slices(events, chosen)]
    yield from _some(events, outside, "flow event", "lies in no slice", "lie in no slice")


@file_rule("SP306", "Flow end before its start", "warning")
def end_before_start(survey: FileSurvey) -> Iterator[Found]:
    """Clock noise, mostly: a viewer that reads by time finds no start and draws no arrow."""
    events = survey.events
    flows = _Flows(events)
    if not len(flows.index):
        return
    times = events.start[flows.index]
    order = np.argsort(flows.key[flows.is_start], kind="stable")
    keys, starts = flows.key[flows.is_start][order], times[flows.is_start][order]
    unique, first = np.unique(keys, return_index=True)
    if not len(unique):
        return
    earliest = np.minimum.reduceat(starts, first)
    ends = np.flatnonzero(~flows.is_start)
    place = np.minimum(np.searchsorted(unique, flows.key[ends]), len(unique) - 1)
    early = ends[(unique[place] == flows.key[ends]) & (times[ends] < earliest[place])]
    early = early[~np.isin(flows.index[early], survey.failed)]
    yield from _some(events, flows.index[early], "flow end", "is before its start", "are before their start")


@file_rule("SP307", "Async begin and end do not pair", "warning")
def unpaired_async(survey: FileSurvey) -> Iterator[Found]:
    """More begins than ends with one id, or the other way round."""
    events = survey.events
    table = events.asyncs
    letters = events.phase[table.index]
    usable = table.problem != NO_ID
    begin = usable & np.isin(letters, [ord("b"), ord("S")])
    end = usable & np.isin(letters, [ord("e"), ord("F")])
    keys, inverse = np.unique(table.key, return_inverse=True)
    balance = np.bincount(inverse, begin.astype(int), len(keys)) - np.bincount(
        inverse, end.astype(int), len(keys)
    )
    odd = np.flatnonzero(balance)
    if len(odd):
        first = int(table.index[(begin | end) & (balance[inverse] != 0)].min())
        count = int(np.abs(balance).sum())
        yield Found(
            count, some(count, "async event", "has", "have") + " no counterpart", events.describe(first)
        )


@file_rule("SP308", "Async event without an id", "error", "fix")
def async_without_id(survey: FileSurvey) -> Iterator[Found]:
    """Nothing says which begin and end belong together."""
    events = survey.events
    table = events.asyncs
    lacking = table.index[table.problem == NO_ID]
    lacking = lacking[np.isin(events.phase[lacking], [ord(letter) for letter in "bneSF"])]
    yield from _some(events, lacking, "async event", "has no id", "have no id")


class _Flows:
    """Flow events that have an id and a time."""

    def __init__(self, events: Events) -> None:
        flows = events.flows
        usable = (flows.problem != NO_ID) & (events.start[flows.index] != NO_TIME)
        self.index = flows.index[usable]
        self.key = flows.key[usable]
        self.is_start = events.phase[self.index] == ord("s")


def _some(events: Events, chosen: Array, noun: str, verb: str, plural_verb: str) -> Iterator[Found]:
    if len(chosen):
        first = int(chosen[np.argmin(events.start[chosen])])
        yield Found(len(chosen), some(len(chosen), noun, verb, plural_verb), events.describe(first))


def _inside_slices(events: Events, chosen: Array) -> Array:
    """For each of the `chosen` events, whether a slice of its track is open at its time.

    One that begins and never ends is open to the end.
    """
    inside = np.isin(events.row[chosen], events.row[events.begins.unclosed])
    nesting = events.nesting
    wanted = events.row[chosen]
    for row in np.unique(wanted).tolist():
        low, high = np.searchsorted(nesting.rows, [row, row + 1])
        if low == high:
            continue
        here = np.flatnonzero(wanted == row)
        latest = np.maximum.accumulate(nesting.ends[low:high])
        at = events.start[chosen[here]]
        place = np.searchsorted(nesting.starts[low:high], at, side="right") - 1
        inside[here] |= (place >= 0) & (latest[np.maximum(place, 0)] >= at)
    return inside
