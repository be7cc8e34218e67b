"""The second reading of a trace: its events with their new numbers and times, as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, Raw

from slime_profiler_plugin.read import Damage, TraceEvent, TraceFile, VanishedError, read_pieces

from ._budget import KERNEL, OTHER_SLICE, Thresholds
from ._counters import read_counter
from ._counts import count_events
from ._filters import OUTSIDE_WINDOW, drop_arrows
from ._kinds import COUNTER, FLOW_END, FLOW_START, OLD_ASYNC, SHOWN_OLD_ASYNC, Bools, Ints
from ._part import Part, PartWriter
from ._source import add_members, decode_members, encode_value, members, raw_us
from ._table import Table, Texts

_ENCODER: Final = msgspec.json.Encoder()
_ANNOTATIONS: Final = frozenset({b'"user_annotation"', b'"gpu_user_annotation"'})
#: Key of an event under which its args stand as they were, where others are written.
#: Times of a thread's own clock, which pass through.
_THREAD_TIMES: Final = frozenset({"tts", "tdur"})
_NUMBER: Final = re.compile(rb"-?\d{1,18}(\.\d+)?")
_AS_READ: Final = "args_as_read"
_SLICES: Final = frozenset({"X", "B"})
#: Perfetto numbers the arrows of flow events from 1 on, and takes a ``bind_id`` as it stands.
_FIRST_BIND_ID: Final = 2**40
#: Async events of the old form are drawn by no viewer that knows the new one.
_NEW_LETTERS: Final = {"S": "b", "T": "n", "p": "n", "F": "e"}
#: The shortest decimal text of a double is that of a whole number of ns up to here, in us.
_EXACT_NS: Final = 10**15


class Late(NamedTuple):
    """What is dropped once everything is surveyed: outside `window` (ns, output's clock), below
    thresholds."""

    window: tuple[int, int] | None = None
    thresholds: Thresholds = Thresholds()

    @property
    def is_idle(self) -> bool:
        """Whether it drops nothing."""
        return self.window is None and self.thresholds == Thresholds()


class RewriteTask(NamedTuple):
    """What a worker needs to write a surveyed trace.

    `tracks` are (pid, tid) by number of the row; `shift_ns` leads from the times in the columns to those that
    are written; `first_flow` and `first_async` are the ids before the first.
    """

    trace: TraceFile
    name: str
    folder: Path
    tracks: list[tuple[int, int]]
    shift_ns: int
    first_flow: int
    first_async: int
    annotation: bytes
    late: Late
    part: Path
    compress: bool


class Rewritten(NamedTuple):
    """What was written of a trace; `counts` say what the events are, `mended` what was done to them."""

    part: Part
    events: int
    dropped: Counter[str]
    counts: Counter[str]
    mended: Counter[str]


def rewrite_trace(task: RewriteTask, advance: Callable[[int], None]) -> Rewritten:
    """Read the trace again and write what belongs to the output.

    Raises `read.VanishedError` when there is less than was surveyed.
    """
    table = Table.load(task.folder)
    rows, dropped = np.array(table.rows), Counter[str]()
    if not task.late.is_idle:
        rows, dropped = _drop_late(table, task.late)
    rewriter = _Rewriter(task, table, rows)
    events = 0
    damage: list[Damage] = []
    first = 0
    with task.part.open("wb") as file:
        writer = PartWriter(file, compress=task.compress)
        for piece in read_pieces(task.trace, damage, advance):
            known = piece[: len(rows) - first]  # what was appended meanwhile was not surveyed
            events += rewriter.rewrite(known, first, writer)
            first += len(known)
        part = writer.finish()
    if first != len(rows) or events != int((rows >= 0).sum()):
        raise VanishedError(f"{task.trace.path}: has changed while it was merged")
    counts = count_events(table, rows >= 0)
    if rewriter.counter_values:
        counts["values of counters"] = rewriter.counter_values
    return Rewritten(part, events, dropped, counts, rewriter.mended)


def _drop_late(table: Table, late: Late) -> tuple[Ints, Counter[str]]:
    rows = np.array(table.rows)
    dropped: Counter[str] = Counter()

    def drop(reason: str, which: Bools) -> None:
        count = int((which & (rows >= 0)).sum())
        if count:
            dropped[reason] += count
            rows[which] = -1

    kinds = table.kinds[table.flow_events]
    is_arrow = (kinds >= FLOW_START) & (kinds <= FLOW_END)
    arrows = table.flow_events[is_arrow]
    if late.window is not None:
        first, last = late.window
        outside = (table.starts > last) | (table.starts + table.lengths < first)
        outside[arrows[table.flow_slices[is_arrow] >= 0]] = False  # they go with their slices
        drop(OUTSIDE_WINDOW, outside)
    kernel_ns, other_ns = late.thresholds
    if len(table.sizes_class):
        drop("kernel, dropped for the budget", (table.sizes_class == KERNEL) & (table.lengths < kernel_ns))
        others = (table.sizes_class == OTHER_SLICE) & (table.lengths < other_ns)
        drop("slice, dropped for the budget", others)
    gone = np.zeros(len(rows), np.bool_)
    leads_nowhere = drop_arrows(
        table.flow_events, table.flow_ids, table.flow_kinds, table.flow_slices, rows < 0
    )
    gone[table.flow_events[is_arrow & leads_nowhere]] = True
    drop("arrow of a dropped slice", gone)
    return rows, dropped


class _Rewriter:
    """Writes piece after piece; what is rare is kept apart, so that the many cost little."""

    def __init__(self, task: RewriteTask, table: Table, rows: Ints) -> None:
        self._rows = rows
        self._times = table.starts + task.shift_ns
        self._lengths = table.lengths
        self._pids = np.array([pid for pid, _ in task.tracks] or [0], dtype=np.int64)
        self._tids = np.array([tid for _, tid in task.tracks] or [0], dtype=np.int64)
        ids = np.concatenate((table.flow_ids + task.first_flow, table.async_ids + task.first_async))
        events = np.concatenate((table.flow_events, table.async_events))
        order = np.argsort(events, kind="stable")
        self._id_events, self._ids = events[order], ids[order]
        is_old = (table.kinds == OLD_ASYNC) | (table.kinds == SHOWN_OLD_ASYNC)
        self._has_old_asyncs = bool(is_old.any())
        self._begins = set(table.begins.tolist())
        self._closers = dict(zip(table.begins.tolist(), table.closers.tolist(), strict=True))
        self._end_args, self._names = Texts.load(task.folder)
        self._counters = np.flatnonzero(table.kinds == COUNTER)
        self._odd_phases = table.odd_phases
        self.mended: Counter[str] = Counter()
        self.counter_values = 0
        self._annotation = task.annotation
        self._keeps_lengths = bool(table.keeps_lengths[0])
        self._are_exact = bool(len(rows) == 0 or int(self._times[rows >= 0].max(initial=0)) < _EXACT_NS)

    def rewrite(self, piece: list[TraceEvent], first: int, writer: PartWriter) -> int:
        """Write what is left of the piece; gives how many events that is."""
        last = first + len(piece)
        rows = self._rows[first:last]
        kept = np.flatnonzero(rows >= 0)
        if not len(kept):
            return 0
        numbers = rows[kept]
        times = self._times[first:last][kept]
        self._mend_phases(piece, first, last)
        self._set_ids(piece, first, last)
        self._mend_counters(piece, first, last)
        self._set_begins(piece, first, last)
        chosen = piece if len(kept) == len(piece) else [piece[index] for index in kept.tolist()]
        starts: list[Any] = (times / 1000).tolist() if self._are_exact else list(map(raw_us, times.tolist()))
        pids, tids = self._pids[numbers].tolist(), self._tids[numbers].tolist()
        for event, pid, tid, start in zip(chosen, pids, tids, starts, strict=True):
            event.pid = pid
            event.tid = tid
            event.ts = start
        if not self._keeps_lengths:
            self._set_lengths(chosen, self._lengths[first:last][kept])
        if self._annotation:
            self._annotate(chosen)
        if [event.more for event in chosen].count(UNSET) < len(chosen):
            self._mend_thread_times(chosen)
            writer.write(b",\n" + b",\n".join(_encode_whole(event) for event in chosen))
        else:
            writer.write_events(_ENCODER, chosen)
        return len(chosen)

    def _mend_thread_times(self, chosen: list[TraceEvent]) -> None:
        """One that is no number goes by another name: Perfetto (v52) gives up on the whole file for it."""
        for event in chosen:
            more = event.more
            if more is UNSET or more.keys().isdisjoint(_THREAD_TIMES):
                continue
            odd = {key for key in _THREAD_TIMES & more.keys() if not _is_number(more[key])}
            if odd:
                self.mended["time of a thread's clock that is no number, kept beside it"] += 1
                event.more = {f"{key}_as_read" if key in odd else key: more[key] for key in more}

    def _set_ids(self, piece: list[TraceEvent], first: int, last: int) -> None:
        begin, end = np.searchsorted(self._id_events, [first, last])
        events = (self._id_events[begin:end] - first).tolist()
        numbers = self._ids[begin:end].tolist()
        chosen = [piece[index] for index in events]
        if not self._names and [event.more for event in chosen].count(UNSET) == len(chosen):
            for event, number in zip(chosen, numbers, strict=True):
                event.id = number
            if self._has_old_asyncs:
                for event in chosen:
                    event.ph = _NEW_LETTERS.get(event.ph, event.ph)
            return
        for index, event, number in zip(events, chosen, numbers, strict=True):
            if event.ph in _SLICES:  # which is the end of an arrow itself
                event.more["bind_id"] = number + _FIRST_BIND_ID
                continue
            event.id = number
            event.ph = _NEW_LETTERS.get(event.ph, event.ph)
            if first + index in self._names:
                name = self._names[first + index]
                event.name = Raw(name) if name else UNSET
            if event.more is not UNSET:
                event.more = {
                    key: value for key, value in event.more.items() if key not in ("id", "id2")
                } or UNSET

    def _mend_counters(self, piece: list[TraceEvent], first: int, last: int) -> None:
        begin, end = np.searchsorted(self._counters, [first, last])
        for number in self._counters[begin:end].tolist():
            if self._rows[number] >= 0:
                self._mend_counter(piece[number - first])

    def _mend_counter(self, event: TraceEvent) -> None:
        """Leave only numbers among the values; the args as they were stand beside them."""
        text = b"" if event.args is UNSET else bytes(event.args)
        written, values = read_counter(text)
        self.counter_values += values
        if written == text:
            return
        self.mended["counter whose values are not all numbers, written with those that are"] += 1
        if text:
            event.more = {**({} if event.more is UNSET else event.more), _AS_READ: Raw(text)}
        event.args = Raw(written)

    def _mend_phases(self, piece: list[TraceEvent], first: int, last: int) -> None:
        begin, end = np.searchsorted(self._odd_phases, [first, last])
        for number in self._odd_phases[begin:end].tolist():
            event = piece[number - first]
            event.ph = event.ph[0]

    def _set_begins(self, piece: list[TraceEvent], first: int, last: int) -> None:
        if not self._begins:
            return
        for number in range(first, last):
            if number in self._begins:
                event = piece[number - first]
                event.ph = "X"
                event.dur = Raw(b"0")
                if number in self._end_args:
                    self._join_args(event, self._end_args[number])
                if self._closers[number] < 0:
                    self._add_args(event, b'"unclosed":true')

    def _join_args(self, event: TraceEvent, end: bytes) -> None:
        """Add the args of the end that closed it; where both name one, the end's."""
        more = decode_members(end)
        if more is None:
            self._keep_args(event, Raw(end), "args_of_end_as_read")
            return
        if event.args is not UNSET:
            first = decode_members(event.args)
            if first is None:
                self._keep_args(event, event.args, _AS_READ)
            else:
                more = {**first, **more}
        event.args = Raw(b"{" + members(more) + b"}")

    def _add_args(self, event: TraceEvent, more: bytes) -> None:
        text = b"{}" if event.args is UNSET else bytes(event.args)
        if decode_members(text) is None:
            self._keep_args(event, Raw(text), _AS_READ)
            text = b"{}"
        event.args = Raw(add_members(text, more))

    def _keep_args(self, event: TraceEvent, args: Raw, key: str) -> None:
        """Args that are no object can take nothing in."""
        self.mended["args that are no object, kept beside others"] += 1
        event.more = {**({} if event.more is UNSET else event.more), key: args}

    def _set_lengths(self, chosen: list[TraceEvent], lengths: Ints) -> None:
        for event, length in zip(chosen, lengths.tolist(), strict=True):
            if event.ph == "X":
                event.dur = length / 1000 if length < _EXACT_NS else raw_us(length)

    def _annotate(self, chosen: list[TraceEvent]) -> None:
        for event in chosen:
            if event.cat is not UNSET and event.ph == "X" and bytes(event.cat) in _ANNOTATIONS:
                self._add_args(event, self._annotation)


def _encode_whole(event: TraceEvent) -> bytes:
    more, event.more = event.more, UNSET
    text = _ENCODER.encode(event)
    return text if more is UNSET else add_members(text, members(more))


def _is_number(value: object) -> bool:
    return _NUMBER.fullmatch(encode_value({"": value})[4:-1].strip(b'"')) is not None
