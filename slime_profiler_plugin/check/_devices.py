"""SP6xx: what a device did, and how it belongs to the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from slime_profiler_plugin.clock import ns_to_decimal_us
from slime_profiler_plugin.read import KERNEL_CATEGORIES

from ._collect import LAUNCHES
from ._events import NO_TIME, Events
from ._rules import Found, file_rule, some
from ._survey import FileSurvey

Array = NDArray[Any]

_HOST: Final = ("user_annotation",)
_TWIN: Final = ("gpu_user_annotation",)


@file_rule("SP601", "Device event begins before its launch", "warning")
def before_launch(survey: FileSurvey) -> Iterator[Found]:
    """By correlation: clock noise between host and device. It joins within one rank: not in a merged file."""
    events = survey.events
    links = _Links(events)
    if not len(links.launches) or survey.is_merged:
        return
    values, first = np.unique(links.launch_values, return_index=True)
    place = np.minimum(np.searchsorted(values, links.kernel_values), len(values) - 1)
    launched = events.start[links.launches[first]][place]
    starts = events.start[links.kernels]
    early = (values[place] == links.kernel_values) & (starts < launched)
    early &= ~np.isin(links.kernels, survey.failed)
    if early.any():
        ahead = np.where(early, launched - starts, 0)
        worst = int(np.argmax(ahead))
        count = int(early.sum())
        yield Found(
            count,
            some(count, "device event", "begins before its launch", "begin before their launch")
            + f", by up to {ns_to_decimal_us(int(ahead[worst]))} us",
            events.describe(int(links.kernels[worst])),
        )


@file_rule("SP602", "Annotation without its twin on the device", "warning")
def without_twin(survey: FileSurvey) -> Iterator[Found]:
    """The host's range launched kernels, and the device has no range of that name, or fewer."""
    if survey.is_merged:
        return
    events = survey.events
    links = _Links(events)
    known = links.launches[np.isin(links.launch_values, links.kernel_values)]
    hosts = _slices(events, _HOST)
    launching = hosts[_holds(events, hosts, known)]
    wanted = Counter(events.name[launching].tolist())
    there = Counter(events.name[_slices(events, _TWIN)].tolist())
    lacking = wanted - there
    if lacking:
        count = sum(lacking.values())
        first = next(event for event in launching.tolist() if int(events.name[event]) in lacking)
        yield Found(
            count,
            some(count, "annotation", "launched kernels and has", "launched kernels and have")
            + " no twin on the device",
            events.describe(first),
        )


@file_rule("SP603", "Device annotation without one of the host", "info")
def without_host(survey: FileSurvey) -> Iterator[Found]:
    """The host's range lies outside of what was recorded."""
    events = survey.events
    twins = _slices(events, _TWIN)
    lonely = twins[~np.isin(events.name[twins], events.name[_slices(events, _HOST)])]
    if len(lonely):
        message = some(len(lonely), "device annotation", "has none of the host", "have none of the host")
        yield Found(len(lonely), message, events.describe(int(lonely[0])))


@file_rule("SP604", "Device slice runs over the next ones of its stream", "warning")
def overruns(survey: FileSurvey) -> Iterator[Found]:
    """A stream does one thing at a time: a slice that ends after a whole later one ended too late."""
    events = survey.events
    kernels = events.slices[events.of_category(KERNEL_CATEGORIES)[events.slices]]
    if len(kernels) < 2:
        return
    starts, rows = events.start[kernels], events.row[kernels]
    ends = starts + events.length[kernels]
    over = (rows[1:] == rows[:-1]) & (starts[1:] > starts[:-1]) & (ends[1:] < ends[:-1])
    found = np.flatnonzero(over)
    if len(found):
        first, later = int(kernels[found[0]]), int(kernels[found[0] + 1])
        yield Found(
            len(found),
            some(len(found), "device slice", "runs", "run") + " over a whole later one",
            f"{events.span(first)} over {events.span(later)} on {events.place_of(first)}",
        )


class _Links:
    """Launches and what ran on the device, by correlation."""

    def __init__(self, events: Events) -> None:
        timed = events.start[events.linked] != NO_TIME
        linked, values = events.linked[timed], events.correlation[timed]
        launch = events.of_category(LAUNCHES)[linked]
        self.launches, self.launch_values = linked[launch], values[launch]
        self.kernels, self.kernel_values = linked[~launch], values[~launch]


def _slices(events: Events, categories: tuple[str, ...]) -> Array:
    return events.slices[events.of_category(categories)[events.slices]]


def _holds(events: Events, slices: Array, inner: Array) -> Array:
    """For each slice, whether any of `inner` begins within it on its track."""
    order = inner[np.lexsort((events.start[inner], events.row[inner]))]
    rows, starts = events.row[order], events.start[order]
    held = np.zeros(len(slices), bool)
    for row in np.unique(events.row[slices]).tolist():
        low, high = np.searchsorted(rows, [row, row + 1])
        here = np.flatnonzero(events.row[slices] == row)
        begin = events.start[slices[here]]
        counts = np.searchsorted(starts[low:high], begin + events.length[slices[here]]) - np.searchsorted(
            starts[low:high], begin
        )
        held[here] = counts > 0
    return held
