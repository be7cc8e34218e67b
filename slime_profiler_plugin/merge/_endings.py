"""How each process ended, as far as its records say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from slime_profiler_plugin.read import ProcessSeen

from ._times import RunClocks
from ._tracks import group_incarnations, is_numbered

ENDED: Final = "ended"
ENDED_WITH_JOB: Final = "ended with the job"
ENDED_EARLY: Final = "ended early"
#: It may be running still, or everything was cut off at once.
NO_END: Final = "no end"

_NS_PER_S: Final = 1_000_000_000


#: Each of them, as a run ends.
ENDINGS: Final = (ENDED, ENDED_WITH_JOB, ENDED_EARLY, NO_END)


def find_endings(
    processes: Sequence[ProcessSeen], clocks: RunClocks | None = None
) -> dict[tuple[str, str], str]:
    """One of the four words above for each process of a run, by its key.

    A process without an end ended with the job when its last sign of life lies at most two of its
    periods before the driver's end. Where no driver ended, the last sign of life in the attempt
    stands in for it: who fell silent earlier than that ended early. `clocks` are made from the
    processes where none are given.
    """
    if clocks is None:
        clocks = RunClocks(processes)
    endings = {}
    for attempt in sorted({r.process.attempt for r in processes}):
        members = [r for r in processes if r.process.attempt == attempt]
        driver_ends = [
            clocks.of_process(r).to_reference(r.end.at_ns)
            for r in members
            if r.process.role == "driver" and r.end is not None
        ]
        signs = {r.key: clocks.of_process(r).to_reference(r.last_ns) for r in members}
        for records in members:
            endings[records.key] = _ending(records, signs[records.key], driver_ends, max(signs.values()))
    return endings


def find_replacements(
    processes: Sequence[ProcessSeen],
    endings: Mapping[tuple[str, str], str],
    clocks: RunClocks | None = None,
) -> dict[tuple[str, str], int]:
    """By the key of each process that ended early and was replaced, the number of the incarnation that did.

    That is the first incarnation of its rank, in its attempt, that started after its last sign of life.
    Arguments as for, and from, `find_endings`.
    """
    if clocks is None:
        clocks = RunClocks(processes)
    replaced = {}
    for group in group_incarnations(processes):
        starts = [clocks.of_process(r).to_reference(r.first_ns) for r in group]
        for place, records in enumerate(group):
            if endings[records.key] != ENDED_EARLY or not is_numbered(records.process):
                continue
            last = clocks.of_process(records).to_reference(records.last_ns)
            after = next((n for n in range(place + 1, len(group)) if starts[n] >= last), None)
            if after is not None:
                replaced[records.key] = after + 1
    return replaced


def _ending(records: ProcessSeen, last: int, driver_ends: list[int], latest: int) -> str:
    if records.end is not None:
        return ENDED
    allowed = round(2 * records.process.period_s * _NS_PER_S)
    if driver_ends:
        return ENDED_WITH_JOB if last >= max(driver_ends) - allowed else ENDED_EARLY
    return NO_END if last >= latest - allowed else ENDED_EARLY
