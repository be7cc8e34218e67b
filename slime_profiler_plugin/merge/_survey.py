"""The first reading of a trace: which events belong to the output, where they stand, which ids they need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import numpy as np

from slime_profiler_plugin.clock import EARLIEST_UNIX_NS
from slime_profiler_plugin.read import Damage, TraceFile, read_pieces

from ._begins import match_ends
from ._budget import DurationSizes, EventSizes
from ._columns import Columns
from ._filters import NOT_OF_CATEGORY, TOO_SHORT, WITHOUT_SLICE, CategoryMarks, drop_arrows
from ._flows import Flows, follow_start, number_flows
from ._kinds import (
    BEGIN,
    END,
    FLOW_END,
    FLOW_START,
    METADATA,
    NO_PHASE,
    OLD_ASYNC,
    SHORT,
    SHOWN_OLD_ASYNC,
    SLICE,
    Bools,
    Ints,
)
from ._ledger import Ledger
from ._rollouts import MergeError
from ._slices import find_innermost, find_next, lay_out_tracks
from ._table import Table, Texts
from ._track_names import TrackKey, TrackNames, plain_track

#: What fits 64 bits whatever is added to it, in ns.
_LATEST_NS: Final = 2**62
#: How often flows are numbered anew, because ends among them lead nowhere.
_MOST_ROUNDS: Final = 20
#: An event at time 0 is none where everything else is at least this much later, ns.
_FAR_NS: Final = 3600 * 10**9
#: So many numbers of rows are looked up in a table whatever the number of events.
_FEW_ROWS: Final = 1 << 16


class Clock(Protocol):
    """How the times of a trace are brought onto the clock of the output."""

    @property
    def least_ns(self) -> int:
        """The least time that is one, in ns of the file itself."""

    def place_all(self, starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
        """Starts and ends on the output's clock, ns."""


class SurveyTask(NamedTuple):
    """What a worker needs to survey a trace; it leaves its columns in `folder`.

    `stretches` of time (ns, the output's clock, both ends included) belong to the output.
    """

    trace: TraceFile
    name: str
    clock: Clock
    stretches: list[tuple[float, float]]
    categories: frozenset[str] | None
    min_duration_ns: int
    with_sizes: bool
    folder: Path


class Survey(NamedTuple):
    """What the parent needs to know of a surveyed trace.

    `rows` are (track, lane) by their number in the columns. Times are those of the output's clock, ns.
    `offset_ns` leads there from those of the file. `is_wall`: the times look like Unix times. `flows` and
    `asyncs`: how many ids are needed. `mended`: what is written other than it was read, by what was done.
    """

    ledger: Ledger
    damage: list[Damage]
    names: TrackNames
    rows: list[tuple[TrackKey, int]]
    first_ns: int | None
    last_ns: int | None
    offset_ns: int
    is_wall: bool
    flows: int
    asyncs: int
    mended: Counter[str]
    sizes: DurationSizes | None


def survey_trace(task: SurveyTask, advance: Callable[[int], None]) -> Survey:
    """Read the trace once. `advance` is told how many bytes of the file were read since the last call.

    Raises `MergeError` where the columns do not fit into memory.
    """
    try:
        return _survey(task, advance)
    except MemoryError:
        raise MergeError(f"{task.trace.path} has more events than fit into memory") from None


def _survey(task: SurveyTask, advance: Callable[[int], None]) -> Survey:
    damage: list[Damage] = []
    names = TrackNames(task.trace.header.identity.get("pid"))
    columns = Columns(plain_track)
    marks = CategoryMarks(task.categories) if task.categories is not None else None
    sizes = EventSizes() if task.with_sizes else None
    for piece in read_pieces(task.trace, damage, advance):
        kinds = columns.add(piece)
        for index in np.flatnonzero(kinds == METADATA).tolist():
            names.note(piece[index])
        if marks is not None:
            marks.add(piece)
        if sizes is not None:
            sizes.add(piece)
    columns.close()
    surveyed = _Surveyed(task, columns)
    surveyed.drop_untimed()
    surveyed.place()
    surveyed.lay_out()
    surveyed.bind_flows()
    surveyed.filter(marks)
    return surveyed.finish(damage, names, sizes)


class _Surveyed:
    """The steps of a survey once all events are in columns; each drops what does not go on."""

    def __init__(self, task: SurveyTask, columns: Columns) -> None:
        self._task = task
        self._columns = columns
        self._ledger = Ledger(source=task.name, read=columns.count)
        self._mended: Counter[str] = Counter()
        #: Events that go on.
        self._is_left: Bools = np.ones(columns.count, np.bool_)
        self._is_slice: Bools = columns.kinds == SLICE

    def drop_untimed(self) -> None:
        """Drop what cannot be placed in time; find the lengths of what has a begin and an end."""
        columns = self._columns
        kinds, starts = columns.kinds, columns.starts
        described = kinds == METADATA
        self._ledger.described = int(described.sum())
        self._is_left &= ~described
        self._drop("event without a phase letter", kinds == NO_PHASE)
        self._drop("event without a time", ~columns.is_timed)
        self._is_wall = self._task.trace.header.base_ns is not None or self._looks_like_unix()
        self._drop("slice of negative length", self._is_slice & (columns.lengths < 0))
        self._drop("event at time 0 or before", starts < self._least_time())
        ends = starts + np.where(self._is_slice, columns.lengths, 0)
        beyond = (starts >= _LATEST_NS) | (ends >= _LATEST_NS) | (ends < starts)
        self._drop("event at a time beyond the clock", beyond)
        lengthless = self._is_left & self._is_slice & ~columns.has_length
        if lengthless.any():
            self._mended["slice without a length, written with length 0"] = int(lengthless.sum())
        odd = int(self._is_left[columns.odd_phases].sum()) if columns.odd_phases else 0
        if odd:
            self._mended["phase of several letters, written as the first"] = odd
        self._match_begins()

    def _looks_like_unix(self) -> bool:
        """Whether most times are Unix times; one that is damaged says nothing of the others."""
        starts = self._columns.starts[self._is_left]
        starts = starts[starts > 0]
        return len(starts) > 0 and bool(np.median(starts) >= EARLIEST_UNIX_NS)

    def _least_time(self) -> int:
        """Times before it are none: what could not be measured is written as 0, far from all that was."""
        least = self._task.clock.least_ns
        starts = self._columns.starts[self._is_left]
        positive = starts[starts > 0]
        is_far = len(positive) > 0 and int(positive.min()) > _FAR_NS
        return max(least, 1) if is_far and least >= 0 else least

    def _match_begins(self) -> None:
        columns = self._columns
        kinds = columns.kinds
        events = np.flatnonzero(self._is_left & ((kinds == BEGIN) | (kinds == END)))
        ends = columns.starts + np.where(self._is_slice, columns.lengths, 0)
        last = int(ends[self._is_left].max(initial=0))
        found = match_ends(events, columns.tracks[events], columns.starts[events], kinds[events], last)
        columns.lengths[found.begins] = found.lengths
        self._is_slice[found.begins] = True
        self._begins, self._closers = found.begins, found.closers
        closed = found.closers[found.closers >= 0]
        args = self._columns.end_args
        self._end_args = {
            begin: args[end]
            for begin, end in zip(found.begins.tolist(), found.closers.tolist(), strict=True)
            if end in args
        }
        self._is_left[closed] = False
        self._ledger.joined = len(closed)
        stray = np.zeros(columns.count, np.bool_)
        stray[found.stray] = True
        self._drop("end without a begin", stray)
        unclosed = len(found.begins) - len(closed)
        if unclosed:
            self._mended["slice that never ends, written to the end of its file"] = unclosed

    def place(self) -> None:
        """Bring times onto the output's clock; set aside what belongs to other rollouts."""
        columns = self._columns
        lengths = np.where(self._is_slice, columns.lengths, 0)
        self._starts = np.zeros(columns.count, np.int64)
        self._ends = np.zeros(columns.count, np.int64)
        left = np.flatnonzero(self._is_left)
        if len(left):
            placed = self._task.clock.place_all(columns.starts[left], lengths[left])
            self._starts[left], self._ends[left] = placed
            del placed
        self._note_placing(left)
        del left, lengths
        columns.release_times()
        outside = (self._starts <= -_LATEST_NS) | (self._ends >= _LATEST_NS)
        self._drop("event at a time beyond the clock", outside)
        inside = np.zeros(columns.count, np.bool_)
        for first, last in self._task.stretches:
            inside |= (self._starts <= last) & (self._ends >= first)
        elsewhere = self._is_left & ~inside
        self._ledger.other_rollouts = int(elsewhere.sum())
        self._is_left &= inside

    def _note_placing(self, left: Ints) -> None:
        """What leads from the times of the file to those of the output; whether lengths stay as written."""
        columns = self._columns
        offsets = self._starts[left] - columns.starts[left]
        is_one = len(offsets) > 0 and int(offsets.min()) == int(offsets.max())
        # One for all, else by event.
        self._offset_events, self._offsets = (left[:1], offsets[:1]) if is_one else (left, offsets)
        slices = left[self._is_slice[left]]
        same = self._ends[slices] - self._starts[slices] == columns.lengths[slices]
        whole = columns.has_plain_lengths and not len(self._begins) and bool(columns.has_length[slices].all())
        self._keeps_lengths = int(whole and bool(same.all()))

    def _offset_of(self, event: int) -> int:
        place = 0 if len(self._offsets) == 1 else int(np.searchsorted(self._offset_events, event))
        return int(self._offsets[place])

    def lay_out(self) -> None:
        """Give every event a row: its track, or a lane of it where slices would cross."""
        columns = self._columns
        self._laid = []
        lanes = np.zeros(columns.count, SHORT)
        slices = np.flatnonzero(self._is_left & self._is_slice)
        with_flows = set(columns.tracks[columns.flows.events].tolist())
        tracks = columns.tracks[slices]
        for laid in lay_out_tracks(slices, tracks, self._starts[slices], self._ends[slices]):
            if laid.track in with_flows:
                self._laid.append(laid)
            if laid.lanes.any():
                lanes[laid.events] = laid.lanes
        self._lanes = lanes

    def bind_flows(self) -> None:
        """Find the slice that each flow event lies on, whose way it goes, and number what is left."""
        flows = self._columns.flows
        in_use = np.flatnonzero(self._is_left[flows.events])
        events = flows.events[in_use]
        times, tracks = self._starts[events], self._columns.tracks[events]
        binds_next, is_slice = flows.binds_next[in_use], flows.is_slice[in_use]
        slices = np.where(is_slice, events, -1)
        order = np.argsort(tracks, kind="stable")
        sorted_tracks = tracks[order]
        for laid in self._laid:
            first, last = np.searchsorted(sorted_tracks, [laid.track, laid.track + 1])
            places = order[first:last]
            if not len(places):
                continue
            inner = find_innermost(laid, times[places])
            under = np.where(binds_next[places], find_next(laid, times[places]), inner)
            bound = (under >= 0) & ~is_slice[places]
            slices[places[bound]] = laid.events[under[bound]]
            self._lanes[events[places[bound]]] = laid.lanes[under[bound]]
        del self._laid
        # Perfetto reports an error for each, and draws nothing.
        goes = slices < 0
        self._drop("end of an arrow that lies on no slice", self._marks(events[goes]))
        # What binds to the next slice is drawn when that begins, without a start from the first slice of all.
        at = np.maximum(times, self._starts[slices])
        for _ in range(_MOST_ROUNDS):
            kept = np.flatnonzero(~goes)
            kinds, names = flows.kinds[in_use[kept]], flows.names[in_use[kept]]
            found = number_flows(flows.keys[in_use[kept]], times[kept], kinds, names)
            stray = binds_next[kept] & ~follow_start(found.ids, kinds, at[kept])
            if not stray.any():
                break
            goes[kept[stray]] = True
            self._drop("end of an arrow without a start before it", self._marks(events[kept[stray]]))
        else:  # ids that are used again and again: what binds to the next slice is given up
            goes |= binds_next
            self._drop("end of an arrow without a start before it", self._marks(events[binds_next]))
            kept = np.flatnonzero(~goes)
            kinds, names = flows.kinds[in_use[kept]], flows.names[in_use[kept]]
            found = number_flows(flows.keys[in_use[kept]], times[kept], kinds, names)
        self._flows: Flows = found
        self._flow_events, self._flow_slices, self._flow_kinds = events[kept], slices[kept], kinds
        self._take_names(names)

    def _marks(self, events: Ints) -> Bools:
        marks = np.zeros(self._columns.count, np.bool_)
        marks[events] = True
        return marks

    def _take_names(self, names: Ints) -> None:
        """Two ends that have an id to themselves are one arrow, which viewers know by one name."""
        heads = np.flatnonzero((self._flow_kinds == FLOW_START) & (self._flows.partners >= 0))
        tails = self._flows.partners[heads]
        differ = names[heads] != names[tails]
        self._flow_names = {
            event: self._columns.flow_name(number)
            for event, number in zip(
                self._flow_events[tails[differ]].tolist(), names[heads[differ]].tolist(), strict=True
            )
        }
        if self._flow_names:
            self._mended["end of an arrow, named as its start"] = len(self._flow_names)

    def filter(self, marks: CategoryMarks | None) -> None:
        """Drop what was not asked for, and arrows with the slices they lie on."""
        if marks is None and not self._task.min_duration_ns:
            return
        kinds = self._columns.kinds
        is_flow = (kinds >= FLOW_START) & (kinds <= FLOW_END)
        unwanted = np.zeros(self._columns.count, np.bool_)
        if marks is not None:
            lies_on_slice = np.zeros(self._columns.count, np.bool_)
            lies_on_slice[self._flow_events[self._flow_slices >= 0]] = True
            unwanted |= ~marks.all() & ~(is_flow & lies_on_slice)
        self._drop(NOT_OF_CATEGORY, unwanted)
        if self._task.min_duration_ns:
            short = self._is_slice & (self._ends - self._starts < self._task.min_duration_ns)
            self._drop(TOO_SHORT, short)
        gone = drop_arrows(
            self._flow_events, self._flows.ids, self._flow_kinds, self._flow_slices, ~self._is_left
        )
        arrows = np.zeros(self._columns.count, np.bool_)
        arrows[self._flow_events[gone]] = True
        self._drop(WITHOUT_SLICE, arrows & is_flow)

    def finish(self, damage: list[Damage], names: TrackNames, sizes: EventSizes | None) -> Survey:
        """Save the columns; say what there is."""
        columns, left = self._columns, self._is_left
        kept = np.flatnonzero(left)
        self._ledger.written = len(kept)
        self._ledger.check()
        rows, listed = self._number_rows(kept)
        is_async = left[columns.asyncs.events]
        asyncs = columns.asyncs.events[is_async]
        is_old = (columns.kinds[kept] == OLD_ASYNC) | (columns.kinds[kept] == SHOWN_OLD_ASYNC)
        if is_old.any():
            self._mended["async event of the old form, written in the new one"] = int(is_old.sum())
        kinds = columns.kinds.copy()
        kinds[self._begins] = SLICE
        table = Table(
            rows=rows,
            kinds=kinds,
            starts=self._starts,
            lengths=self._ends - self._starts,
            sizes_class=np.zeros(0, np.int8) if sizes is None else sizes.classes(self._is_slice),
            flow_events=self._flow_events,
            flow_kinds=self._flow_kinds,
            flow_ids=self._flows.ids,
            flow_slices=self._flow_slices,
            flow_partners=self._flows.partners,
            async_events=asyncs,
            async_ids=columns.asyncs.keys[is_async] + 1,
            begins=self._begins,
            closers=self._closers,
            odd_phases=np.array(columns.odd_phases, dtype=np.int64),
            keeps_lengths=np.array([self._keeps_lengths]),
        )
        table.save(self._task.folder)
        Texts(self._end_args, self._flow_names).save(self._task.folder)
        return Survey(
            ledger=self._ledger,
            damage=damage,
            names=names,
            rows=listed,
            first_ns=int(self._starts[kept].min()) if len(kept) else None,
            last_ns=int(self._ends[kept].max()) if len(kept) else None,
            offset_ns=self._offset_of(int(kept[0])) if len(kept) else 0,
            is_wall=self._is_wall,
            flows=self._flows.highest,
            asyncs=int(table.async_ids.max()) if len(asyncs) else 0,
            mended=self._mended,
            sizes=None if sizes is None else sizes.by_duration(table, left),
        )

    def _number_rows(self, kept: Ints) -> tuple[Ints, list[tuple[TrackKey, int]]]:
        """The row of every event, and the rows in use; tracks in the order in which they come in the file."""
        lane_count = int(self._lanes.max(initial=0)) + 1
        keys = self._columns.track_keys
        combined = self._columns.tracks[kept].astype(np.int64) * lane_count + self._lanes[kept]
        if len(keys) * lane_count <= max(len(kept), _FEW_ROWS):  # no sorting
            used = np.flatnonzero(np.bincount(combined, minlength=1)) if len(kept) else combined
            numbers = np.zeros(len(keys) * lane_count, SHORT)
            numbers[used] = np.arange(len(used))
            numbers = numbers[combined]
        else:
            used, numbers = np.unique(combined, return_inverse=True)
        rows = np.full(self._columns.count, -1, SHORT)
        rows[kept] = numbers
        return rows, [(keys[row // lane_count], row % lane_count) for row in used.tolist()]

    def _drop(self, reason: str, which: Bools) -> None:
        dropped = self._is_left & which
        count = int(dropped.sum())
        if count:
            self._ledger.dropped[reason] += count
            self._is_left &= ~dropped
