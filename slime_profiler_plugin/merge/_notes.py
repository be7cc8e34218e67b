"""Slices that no input holds: what the file is, and who is missing from it.

A viewer shows neither our top-level keys nor a process without events, so what must be seen
is said by a slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from slime_profiler_plugin.read import Run

from ._lanes import assign_lanes
from ._options import MergeOptions
from ._selection import Selection, rollout_order
from ._source import raw_us
from ._tracks import DOT, Tracks, format_rank

_CATEGORY: Final = "note"
_MISSING: Final = "missing"


class Note(NamedTuple):
    """A slice from `start_ns` to `end_ns`, reference clock."""

    pid: int
    tid: int
    name: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]

    def event(self, origin_ns: int) -> dict[str, Any]:
        """As a Chrome trace event: a slice, or a mark for all processes where it has no length."""
        event = {
            "ph": "X",
            "cat": _CATEGORY,
            "name": self.name,
            "pid": self.pid,
            "tid": self.tid,
            "ts": raw_us(self.start_ns - origin_ns),
        }
        if self.end_ns > self.start_ns:
            event["dur"] = raw_us(self.end_ns - self.start_ns)
        else:
            event.update(ph="i", s="g")
        event["args"] = self.args
        return event


def note_rollouts(run_id: str, title: str, selection: Selection, tracks: Tracks) -> list[Note]:
    """One process for each attempt, named by run, attempt and `title`, with a slice for each rollout."""
    notes: list[Note] = []
    for attempt in sorted(selection.spans):
        name = DOT.join([name_attempt(run_id, attempt), title])
        pid = tracks.add_process(name, name)
        extents = {
            r: extent
            for (a, r), extent in selection.extents.items()
            if a == attempt and r in selection.rollouts
        }
        rollouts = sorted(extents, key=rollout_order)
        lanes = assign_lanes([extents[rollout] for rollout in rollouts])
        tids = [tracks.add_thread(pid, "rollouts") for _ in range(max(lanes) + 1)]
        for rollout, lane in zip(rollouts, lanes, strict=True):
            start, end = extents[rollout]
            told = f"rollout {rollout}" if isinstance(rollout, int) else rollout
            args = {"run_id": run_id, "attempt": attempt, "rollout": rollout}
            notes.append(Note(pid, tids[lane], told, start, end, args))
    return notes


def note_absence(pid: int, why: str, about: dict[str, Any], selection: Selection, tracks: Tracks) -> Note:
    """Over the whole span of the attempt: why process `pid` shows nothing. `about`: run_id, attempt."""
    return Note(pid, tracks.add_thread(pid, why), why, *selection.spans[about["attempt"]], about)


def note_missing(
    run: Run, title: str, selection: Selection, tracks: Tracks, options: MergeOptions
) -> Iterator[Note]:
    """A process for every rank that should be there and is not, as far as it was asked for."""
    for ranks in run.role_ranks():
        if ranks.attempt not in selection.spans:
            continue
        attempt = name_attempt(run.run_id, ranks.attempt)
        about = {"run_id": run.run_id, "attempt": ranks.attempt}
        for rank in ranks.missing:
            if not options.takes(ranks.role, rank):
                continue
            parts = [format_rank(ranks.role, rank, {}, 0)]
            if len(run.attempts) > 1:
                parts.append(f"attempt {ranks.attempt}")
            labels = DOT.join([attempt, title, _MISSING])
            pid = tracks.add_process(DOT.join([*parts, _MISSING]), labels)
            yield note_absence(pid, _MISSING, about, selection, tracks)


def name_attempt(run_id: str, attempt: int) -> str:
    """``run R · attempt 0``."""
    return f"run {run_id}{DOT}attempt {attempt}"
