"""A torch.profiler window as a source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Final

import msgspec
from msgspec import UNSET, Raw

from slime_profiler_plugin.read import (
    Damage,
    TimedEvent,
    TraceEvent,
    TraceWindow,
    impossible_time,
    read_events,
)

from ._flows import IdSource
from ._ledger import Ledger
from ._selection import Selection
from ._source import add_members, members, raw_us
from ._times import WindowClock
from ._tracks import DOT, Tracks
from ._window_names import TrackKey, TrackNames, track_key
from ._window_survey import WindowSurvey

_ASYNC_PHASES: Final = frozenset("bneSTFpNOD")
_ANNOTATIONS: Final = (b'"user_annotation"', b'"gpu_user_annotation"')
_EVENT: Final = msgspec.json.Encoder()
_BATCH: Final = 4000
#: What fits the flat arrays of the survey, whatever a damaged clock pair makes of a time.
_LATEST_NS: Final = 2**62


class OtherWindow:
    """A window of other rollouts: its events are counted, once for all outputs."""

    def __init__(self, window: TraceWindow) -> None:
        self.damage: list[Damage] = []
        read = described = 0
        for piece in read_events(window.path, self.damage):
            read += len(piece)
            described += sum(timed.event.ph == "M" for timed in piece)
        self.ledger = Ledger(
            source=f"other rollouts ({window.path.name})",
            read=read,
            described=described,
            other_rollouts=read - described,
        )


class WindowSource:
    """The events of one window that belong to an output.

    The survey keeps a few numbers per event, in flat arrays, until it knows which slices change
    lanes and which ids flows get; what is left then is small.
    """

    def __init__(
        self,
        window: TraceWindow,
        clock: WindowClock,
        selection: Selection,
        tracks: Tracks,
        ids: IdSource,
        shown: tuple[str, str],
    ) -> None:
        self.first_ns: int | None = None
        self.damage: list[Damage] = []
        self.ledger = Ledger(source=f"{shown[0]} ({window.path.name})")
        #: Processes in the output, by what they were in the file.
        self.pids: dict[str, int] = {}
        self._window = window
        self._clock = clock
        self._tracks = tracks
        self._ids = ids
        self._name, self._labels = shown
        self._stretches = selection.stretches(window.attempt, window.covers)
        self._names = TrackNames(window.header.identity.get("pid"))
        self._moved: dict[int, int] = {}
        self._flow_ids: dict[int, int] = {}
        self._async_ids: dict[Hashable, int] = {}
        self._tids: dict[tuple[TrackKey, int], tuple[int, int]] = {}
        self._shift: int | None = None
        self._annotation_ids = members(
            {
                "run_id": window.header.identity.get("run_id"),
                "attempt": window.attempt,
                "rollouts": window.covers,
            }
        )

    def survey(self) -> None:
        """Find the events that belong here, their lanes, flows and tracks."""
        survey = WindowSurvey()
        ledger = Ledger(source=self.ledger.source)
        for number, timed in enumerate(self._read(self.damage)):
            ledger.read += 1
            event = timed.event
            if event.ph == "M":
                self._names.note(event)
                ledger.described += 1
            else:
                place = self._place(timed, ledger)
                if place is not None:
                    ledger.written += 1
                    survey.add(number, track_key(event), event, *place)
        self.ledger = ledger
        if not ledger.written:
            return
        self.first_ns = survey.first_ns
        self._moved, lanes = survey.find_lanes()
        self._flow_ids = survey.find_flows(self._ids)
        self._moved.update(survey.follow_slices(self._moved))
        self._claim(survey.tracks, lanes)

    def events(self, origin_ns: int) -> Iterator[list[bytes]]:
        """Read again and write what belongs here."""
        scratch = Ledger(source="")
        batch: list[bytes] = []
        for number, timed in enumerate(self._read([])):
            if timed.event.ph != "M":
                place = self._place(timed, scratch)
                if place is not None:
                    batch.append(self._encode(timed.event, number, place, origin_ns))
                    if len(batch) >= _BATCH:
                        yield batch
                        batch = []
        if batch:
            yield batch

    def _read(self, damage: list[Damage]) -> Iterator[TimedEvent]:
        for piece in read_events(self._window.path, damage):
            times = [timed.start_ns for timed in piece if timed.start_ns is not None]
            self._shift = self._clock.constant_shift(min(times), max(times)) if times else None
            yield from piece

    def _place(self, timed: TimedEvent, ledger: Ledger) -> tuple[int, int] | None:
        """(start, end) in reference ns, or ``None`` with the reason in the ledger."""
        event, start, length = timed
        if not event.ph:
            ledger.dropped["event without a phase letter"] += 1
            return None
        if start is None:
            ledger.dropped["event without a time"] += 1
            return None
        reason = impossible_time(start, start + length)
        if reason is not None:
            ledger.dropped[reason] += 1
            return None
        if self._shift is not None:
            first = start + self._shift
            last = first + length
        else:
            first, last = self._clock.span_to_reference(start, start + length)
        if first <= -_LATEST_NS or last >= _LATEST_NS:
            ledger.dropped["event at a time beyond the clock"] += 1
            return None
        if not self._belongs(first, last):
            ledger.other_rollouts += 1
            return None
        return first, last

    def _belongs(self, first: int, last: int) -> bool:
        return any(first <= end and last >= start for start, end in self._stretches)

    def _claim(self, tracks: list[TrackKey], lanes: dict[TrackKey, int]) -> None:
        by_process: dict[Hashable, list[TrackKey]] = defaultdict(list)
        for key in tracks:
            by_process[key[0]].append(key)
        qualifiers = ["truncated"] if any(d.kind == "truncated" for d in self.damage) else []
        for process in sorted(by_process, key=self._names.process_order):
            part = self._names.part(process)
            name = DOT.join([self._name, *qualifiers, part])
            pid = self._tracks.add_process(name, self._labels)
            self.pids[part] = pid
            for key in sorted(by_process[process], key=self._names.thread_order):
                name = self._names.thread(key)
                for lane in range(lanes.get(key, 0) + 1):
                    self._tids[key, lane] = pid, self._tracks.add_thread(pid, name)

    def _encode(self, event: TraceEvent, number: int, place: tuple[int, int], origin_ns: int) -> bytes:
        event.pid, event.tid = self._tids[track_key(event), self._moved.get(number, 0)]
        event.ts = raw_us(place[0] - origin_ns)
        if event.dur is not UNSET or event.ph == "X":
            event.dur = raw_us(place[1] - place[0])
        if number in self._flow_ids:
            event.id = self._flow_ids[number]
        elif event.ph in _ASYNC_PHASES:
            self._rename_async(event)
        if event.ph == "X" and event.cat is not UNSET and bytes(event.cat) in _ANNOTATIONS:
            event.args = Raw(
                add_members(b"{}" if event.args is UNSET else bytes(event.args), self._annotation_ids)
            )
        more, event.more = event.more, UNSET
        text = _EVENT.encode(event)
        return text if more is UNSET else add_members(text, members(more))

    def _rename_async(self, event: TraceEvent) -> None:
        more = dict(event.more) if event.more is not UNSET else {}
        id2 = more.pop("id2", None)
        if event.id is UNSET and id2 is None:
            return
        category = b"" if event.cat is UNSET else bytes(event.cat)
        # A local id is local to its process.
        owner = track_key(event)[0] if isinstance(id2, dict) and "local" in id2 else None
        key = (category, owner, str(event.id if id2 is None else id2))
        if key not in self._async_ids:
            self._async_ids[key] = self._ids.new()
        event.id = self._async_ids[key]
        event.more = more or UNSET
