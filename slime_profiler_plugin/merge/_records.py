"""A process's record file as a source: phases, brackets, marks, buckets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from slime_profiler_plugin import schema
from slime_profiler_plugin.clock import Alignment
from slime_profiler_plugin.read import (
    DESCRIPTIONS,
    Block,
    ProcessRecords,
    RecordLine,
    impossible_time,
    rollout_key,
)

from ._arrows import Endpoint
from ._filters import NOT_OF_CATEGORY, OUTSIDE_WINDOW, TOO_SHORT
from ._items import (
    Item,
    RowKey,
    bracket_row,
    device_args,
    name_row,
    row_of,
    row_order,
    span_args,
    when,
)
from ._ledger import Ledger
from ._options import MergeOptions
from ._pairs import Pair, find_pair
from ._rows import Row, lay_out
from ._selection import Selection, SyncIndex, choose_blocks
from ._source import ENCODER, Context, raw_us
from ._tracks import Tracks

_TIMED: Final = (schema.Phase, schema.Open, schema.Mark, schema.Device, schema.Drop)
_BATCH: Final = 2000
#: Why a record is in no output at all.
_OUTSIDE: Final = "names no rollout, and none was under way"


class RecordSource:
    """The records of one process that belong to an output.

    After the survey: `pid` is its process in the output, or ``None`` when it has nothing to show;
    `endpoints` are where arrows may start and end.
    """

    def __init__(
        self,
        records: ProcessRecords,
        alignment: Alignment,
        selection: Selection,
        syncs: SyncIndex,
        tracks: Tracks,
        shown: tuple[str, str],
        options: MergeOptions,
    ) -> None:
        self.records = records
        #: Stretch of time (reference ns) outside of which nothing is written; set after the survey.
        self.window: tuple[int, int] | None = None
        self._options = options
        self.first_ns: int | None = None
        self.pid: int | None = None
        self.endpoints: list[Endpoint] = []
        self.ledger = Ledger(source="")
        self._alignment = alignment
        self._selection = selection
        self._syncs = syncs
        self._tracks = tracks
        self._name, self._labels = shown
        self._ids = Context(records.process.run_id, records.process.attempt)
        self._open_ids = {line.id: line for line in records.opens}
        self._tids: dict[tuple[RowKey, int], int] = {}
        chosen = choose_blocks(records, alignment, selection, syncs)
        self._chosen = {(block.segment, block.number) for block in chosen}

    def survey(self) -> None:
        """Select, lay out, claim tracks, find the ends of arrows."""
        rows = self._rows()
        if not rows:
            return
        self.first_ns = min(item.start_ns for row in rows for item in row.items)
        self.pid = self._tracks.add_process(self._name, self._labels)
        for row in rows:
            name = name_row(row.key, self.records.threads)
            tid = self._tids[row.key, row.lane] = self._tracks.add_thread(self.pid, name)
            pairs = [None if item.is_mark else find_pair(item.name, item.args) for item in row.items]
            if any(pairs):
                for pair, item, free in zip(pairs, row.items, row.free_stretches(), strict=True):
                    if pair is not None:
                        self.endpoints.append(self._endpoint(pair, item, tid, free))

    def events(self, origin_ns: int) -> Iterator[list[bytes]]:
        """Select and lay out once more, and write."""
        batch: list[bytes] = []
        for row in self._rows():
            tid = self._tids[row.key, row.lane]
            for item in row.items:
                if not self._is_inside(item.start_ns, item.end_ns):
                    self.ledger.written -= 1
                    self.ledger.dropped[OUTSIDE_WINDOW] += 1
                    continue
                batch.append(self._encode(item, tid, origin_ns))
                if len(batch) >= _BATCH:
                    yield batch
                    batch = []
        if batch:
            yield batch

    def endpoints_inside(self) -> Iterator[Endpoint]:
        """The ends of arrows that lie on slices inside the window."""
        return (end for end in self.endpoints if self._is_inside(end.start_ns, end.end_ns))

    def _is_inside(self, start_ns: int, end_ns: int) -> bool:
        return self.window is None or (start_ns <= self.window[1] and end_ns >= self.window[0])

    def _encode(self, item: Item, tid: int, origin_ns: int) -> bytes:
        event: dict[str, Any] = {
            "ph": "X",
            "cat": item.category,
            "name": item.name,
            "pid": self.pid,
            "tid": tid,
        }
        event["ts"] = raw_us(item.start_ns - origin_ns)
        if item.is_mark:
            event["ph"] = "i"
            event["s"] = "t"
        else:
            event["dur"] = raw_us(item.end_ns - item.start_ns)
        event["args"] = item.args
        return ENCODER.encode(event)

    def _endpoint(self, pair: Pair, item: Item, tid: int, free: list[tuple[int, int]]) -> Endpoint:
        args = item.args
        process = self.records.process
        sends = item.name == pair.send
        engine = process.engine.get("index", process.rank)
        version = args.get("weight_version")
        assert self.pid is not None, "claimed before its tracks"
        return Endpoint(
            pair=pair,
            begins=sends,
            attempt=process.attempt,
            source=args.get("source", self.records.source if sends else None),
            sync=args.get("sync"),
            bucket=args.get("bucket"),
            weight_version=version,
            version_reused=version is not None and self._syncs.is_reused(process.attempt, version),
            engine=args.get("engine", None if sends else engine),
            group=args.get("attrs", {}).get("group"),
            transport=args.get("transport"),
            receiver=None if sends else self.records.key,
            pid=self.pid,
            tid=tid,
            start_ns=item.start_ns,
            end_ns=item.end_ns,
            free=tuple(free),
        )

    def _rows(self) -> list[Row]:
        items = self._select()
        return lay_out(items, lambda key: row_order(key, self.records.process.pid))

    def _select(self) -> list[Item]:
        """The items of this output; counts what becomes of every line."""
        files = ", ".join(segment.path.name for segment in self.records.segments)
        ledger = Ledger(source=f"{self._name} ({files})", read=sum(self.records.counts.values()))
        for block in self.records.blocks:
            if not self._wants(block):
                ledger.described += block.described
                ledger.other_rollouts += block.lines - block.described - block.unknown.total()
                ledger.dropped.update({_unknown(kind): n for kind, n in block.unknown.items()})
        items: list[Item] = []
        phases: dict[int, Item] = {}
        for entry in self.records.items(self._wants):
            line = entry.line
            item: Item | str | None
            reason = impossible_time(*when(line)) if isinstance(line, _TIMED) else None
            if reason is not None:
                ledger.dropped[reason] += 1
                continue
            if isinstance(line, (schema.Phase, schema.Open, schema.Mark)):
                if isinstance(line, schema.Open) and self._open_ids.get(line.id) != line:
                    ledger.dropped["superseded by the phase that ended"] += 1
                    continue
                item = self._span(entry, line)
                if isinstance(item, Item) and item.phase_id is not None:
                    phases[item.phase_id] = item
            elif isinstance(line, schema.Device):
                item = self._bracket(entry, line, phases.get(line.id))
            elif isinstance(line, schema.Drop):
                item = self._drop(line)
            elif isinstance(line, DESCRIPTIONS):
                ledger.described += 1
                continue
            else:
                ledger.dropped[_unknown(entry.kind)] += 1
                continue
            if isinstance(item, Item):
                item = self._filter(item)
            if item is None:
                ledger.other_rollouts += 1
            elif isinstance(item, str):
                ledger.dropped[item] += 1
            else:
                ledger.written += 1
                items.append(item)
        self.ledger = ledger
        return items

    def _filter(self, item: Item) -> Item | str:
        """The item, or why it is not asked for."""
        categories = self._options.categories
        if categories is not None and item.category not in categories:
            return NOT_OF_CATEGORY
        if not item.is_mark and item.end_ns - item.start_ns < self._options.min_duration_ns:
            return TOO_SHORT
        return item

    def _wants(self, block: Block) -> bool:
        return (block.segment, block.number) in self._chosen

    def _elsewhere(self, start_ns: int, end_ns: int) -> str | None:
        """What became of something that only its time can place, and that is not here.

        ``None``: it is in another output.
        """
        return _OUTSIDE if self._selection.is_outside(self._ids.attempt, start_ns, end_ns) else None

    def _span(self, entry: RecordLine, line: schema.Phase | schema.Open | schema.Mark) -> Item | str | None:
        rollout = self._syncs.rollout_of(self._ids.attempt, rollout_key(line))
        if rollout is not None and rollout not in self._selection.rollouts:
            return None
        start, end = when(line)
        if isinstance(line, schema.Open):
            end = max(end, self.records.last_ns)
        start, end = self._alignment.span_to_reference(start, end)
        if rollout is None and not self._selection.touches(self._ids.attempt, start, end):
            return self._elsewhere(start, end)
        args = span_args(entry, line, rollout, self._ids)
        name = line.name
        if isinstance(line, schema.Open):
            name = f"{name} (open)"
            args["open"] = True
        is_mark = isinstance(line, schema.Mark)
        return Item(
            start,
            end,
            name,
            "mark" if is_mark else "phase",
            row_of(line),
            args,
            is_mark,
            None if is_mark else line.id,  # type: ignore[union-attr]
            line.parent,
            line.task,
        )

    def _bracket(self, entry: RecordLine, line: schema.Device, phase: Item | None) -> Item | str | None:
        if phase is None and line.id not in self.records.orphan_brackets:
            return None
        start, end = self._alignment.span_to_reference(*when(line))
        if phase is None and not self._selection.touches(self._ids.attempt, start, end):
            return self._elsewhere(start, end)
        return Item(
            start,
            end,
            f"bracket of phase {line.id}" if phase is None else phase.name,
            "bracket",
            bracket_row(line),
            device_args(line, None if phase is None else phase.args, entry, self._ids),
        )

    def _drop(self, line: schema.Drop) -> Item | str | None:
        at = self._alignment.to_reference(line.at_ns)
        if not self._selection.touches(self._ids.attempt, at, at):
            return self._elsewhere(at, at)
        args: dict[str, Any] = {"run_id": self._ids.run_id, "attempt": self._ids.attempt, "count": line.count}
        args.update(what=line.what, reason=line.reason)
        if line.names:
            args["names"] = line.names
        return Item(
            at, at, f"{line.count} {line.what} dropped", "drop", ("drops", "", 0, 0), args, is_mark=True
        )


def _unknown(kind: str) -> str:
    return f"kind {kind} is not known"


def count_open(records: ProcessRecords) -> Counter[str]:
    """Names of the phases that a process never ended."""
    return Counter(line.name for line in records.opens)
