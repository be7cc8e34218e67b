"""SP1xx: processes, threads, and how slices nest on them."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from slime_profiler_plugin.clock import ns_to_decimal_us
from slime_profiler_plugin.read import INVENTED_PIDS, plain_id

from ._events import NO_TIME, Events, count_by, spell
from ._rules import Found, file_rule, some
from ._survey import FileSurvey

#: What torch.profiler calls a thread, after what the system calls it at that moment.
_SYSTEM_NAME: Final = re.compile(r"thread \d+ \(.*\)")
_LARGEST_PID: Final = 2**32


@file_rule("SP101", "Slices cross on one track", "error", "fix")
def crossing_slices(survey: FileSurvey) -> Iterator[Found]:
    """A slice that begins inside another and outlives it, by as little as 1 ns: Perfetto drops it.

    A slice that was found crossing is left out, as the viewer does: A 0..4, B 2..6, C 5..8 is one crossing.
    """
    events, nesting = survey.events, survey.events.nesting
    count, first = 0, None
    for low, high in _groups(nesting.rows):
        starts, ends = nesting.starts[low:high].tolist(), nesting.ends[low:high].tolist()
        stack: list[tuple[int, int]] = []
        for place, (start, end) in enumerate(zip(starts, ends, strict=True), low):
            while stack and stack[-1][0] <= start:
                stack.pop()
            if stack and end > stack[-1][0]:
                count += 1
                if first is None or start < first[0]:
                    first = (start, stack[-1][1], place)
            else:
                stack.append((end, place))
    if first is not None:
        _, outer, crossing = first
        where = events.place_of(int(nesting.events[crossing]))
        yield Found(
            count,
            some(count, "slice", "crosses another", "cross others") + " on a track",
            f"{_span(events, outer)} and {_span(events, crossing)} on {where}",
        )


@file_rule("SP102", "Begin event without an end", "warning", "fix")
def begin_without_end(survey: FileSurvey) -> Iterator[Found]:
    """A B that no E closes."""
    events = survey.events
    yield from _some_events(events, events.begins.unclosed, "begin event", "has no end", "have no end")


@file_rule("SP103", "End event without a begin", "error", "fix")
def end_without_begin(survey: FileSurvey) -> Iterator[Found]:
    """An E that finds no open B on its track."""
    events = survey.events
    yield from _some_events(events, events.begins.stray, "end event", "closes nothing", "close nothing")


@file_rule("SP104", "Complete slice without a duration", "error", "fix")
def slice_without_duration(survey: FileSurvey) -> Iterator[Found]:
    """An X without dur, or with one that is no number."""
    events = survey.events
    chosen = events.of_phase("X")
    yield from _some_events(
        events, chosen[events.length[chosen] == NO_TIME], "slice", "has no duration", "have no duration"
    )


@file_rule("SP105", "Process or thread id is a string", "warning", "fix")
def string_ids(survey: FileSurvey) -> Iterator[Found]:
    """Perfetto shows a made-up number for it, and the string nowhere.

    What torch.profiler invents for each of its files is no fault.
    """
    yield from _of_tracks(
        survey,
        lambda track: (
            any(isinstance(value, str) for value in track)
            and not (survey.is_of_torch and track[0] in INVENTED_PIDS)
        ),
        "has a string as pid or tid",
        "have strings as pid or tid",
    )


@file_rule("SP106", "Process or thread id does not fit in 32 bits", "error", "fix")
def large_ids(survey: FileSurvey) -> Iterator[Found]:
    """Perfetto takes the main thread, or process 0, in its place."""
    yield from _of_tracks(
        survey,
        lambda track: any(isinstance(value, int) and abs(value) >= _LARGEST_PID for value in track),
        "has a pid or tid beyond 32 bits",
        "have a pid or tid beyond 32 bits",
    )


@file_rule("SP107", "Process or thread id is negative", "error", "fix")
def negative_ids(survey: FileSurvey) -> Iterator[Found]:
    """Perfetto takes the main thread, or process 0, in its place."""
    yield from _of_tracks(
        survey,
        lambda track: any(isinstance(value, int) and -_LARGEST_PID < value < 0 for value in track),
        "has a negative pid or tid",
        "have a negative pid or tid",
    )


@file_rule("SP108", "One thread is spelled as number and as string", "error", "fix")
def two_spellings(survey: FileSurvey) -> Iterator[Found]:
    """Slices stand under ``"7"`` and their arrows under 7: two rows, and the arrows find no slice."""
    spellings: dict[Hashable, set[str]] = defaultdict(set)
    for pid, tid in survey.events.tracks:
        spellings[plain_id(pid), plain_id(tid)].add(f"pid {spell(pid)} tid {spell(tid)}")
    doubled = [sorted(told) for told in spellings.values() if len(told) > 1]
    if doubled:
        yield Found(
            len(doubled),
            some(len(doubled), "thread", "is spelled in two ways", "are spelled in two ways"),
            " and ".join(doubled[0]),
        )


@file_rule("SP109", "Event without a process or thread id", "warning", "fix")
def missing_ids(survey: FileSurvey) -> Iterator[Found]:
    """No pid, or no tid where the event needs a thread."""
    events = survey.events
    lacking = np.array(
        [pid is UNSET or pid is None or tid is UNSET or tid is None for pid, tid in events.tracks] or [False]
    )
    no_pid = np.array([pid is UNSET or pid is None for pid, _ in events.tracks] or [False])
    needs_thread = ~np.isin(events.phase, [ord(letter) for letter in "CbneSTFpNODRcVv"])
    without = np.where(needs_thread, lacking[events.track], no_pid[events.track])
    chosen = np.flatnonzero(without & (events.phase != 0))
    yield from _some_events(events, chosen, "event", "has no pid or tid", "have no pid or tid")


@file_rule("SP110", "Names of one process or thread disagree", "warning", "fix")
def disagreeing_names(survey: FileSurvey) -> Iterator[Found]:
    """Two different names; a viewer shows one of them.

    A thread that renames itself, and of which torch.profiler writes both names, is no fault.
    """
    names = survey.events.names
    told = [
        (f"pid {spell(process)}", given) for process, given in names.processes.items() if len(given) > 1
    ] + [
        (f"pid {spell(process)} tid {spell(thread)}", given)
        for (process, thread), given in names.threads.items()
        if len(given) > 1 and not (survey.is_of_torch and all(map(_SYSTEM_NAME.fullmatch, given)))
    ]
    if told:
        where, given = told[0]
        quoted = " and ".join(f'"{name}"' for name in given[:2])
        noun = "process or thread has" if len(told) == 1 else "processes or threads have"
        yield Found(len(told), f"{len(told)} {noun} names that disagree", f"{where} is {quoted}")


@file_rule("SP111", "Metadata of a process without events", "info", "fix")
def idle_metadata(survey: FileSurvey) -> Iterator[Found]:
    """Names for processes that do nothing. torch.profiler names all GPUs of the machine: that is no fault."""
    busy = {plain_id(pid) for pid, _ in survey.events.tracks}
    names = survey.events.names
    named = {pid: plain_id(pid) for pid in names.spelled}
    idle = [pid for pid, process in named.items() if process not in busy | names.devices]
    if idle and busy and not survey.is_merged:  # where a missing rank is one
        noun = "process has" if len(idle) == 1 else "processes have"
        yield Found(
            len(idle), f"{len(idle)} {noun} metadata and no event", f"pid {spell(min(idle, key=str))}"
        )


def _groups(rows: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """The stretches of equal numbers."""
    bounds = np.flatnonzero(np.diff(rows, prepend=-1, append=-1)).tolist()
    yield from itertools.pairwise(bounds)


def _span(events: Events, place: int) -> str:
    nesting = events.nesting
    start, end = int(nesting.starts[place]), int(nesting.ends[place])
    return (
        f"{events.name_of(int(nesting.events[place]))} {ns_to_decimal_us(start)}..{ns_to_decimal_us(end)} us"
    )


def _some_events(
    events: Events, chosen: NDArray[Any] | list[int], noun: str, verb: str, plural_verb: str
) -> Iterator[Found]:
    if len(chosen):
        yield Found(len(chosen), some(len(chosen), noun, verb, plural_verb), events.describe(int(chosen[0])))


def _of_tracks(
    survey: FileSurvey, odd: Callable[[tuple[Hashable, Hashable]], bool], verb: str, plural_verb: str
) -> Iterator[Found]:
    events = survey.events
    wrong = [number for number, track in enumerate(events.tracks) if odd(track)]
    if wrong and not survey.has_given_ids:
        count = count_by(events.track)
        pid, tid = events.tracks[wrong[0]]
        total = some(sum(count[number] for number in wrong), "event")
        yield Found(
            len(wrong),
            f"{some(len(wrong), 'track', verb, plural_verb)} ({total})",
            f"pid {spell(pid)} tid {spell(tid)}",
        )
