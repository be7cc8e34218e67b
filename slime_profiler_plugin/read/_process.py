"""The records of one process: a summary that is kept, and its lines, read again when asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from slime_profiler_plugin import schema
from slime_profiler_plugin.clock import ClockPair, PairFolder
from slime_profiler_plugin.schema import Rollout

from ._damage import Damage
from ._index import Block, KnownPhases, impossible_time
from .records import RecordLine, Segment, read_line_blocks

#: One wall clock read says nothing about its own error; this is what a slow read costs.
_START_PAIR_ERROR_NS = 1_000_000


class ProcessSeen:
    """Who a process is and when it was seen, however much of its files was read.

    `process` is its identity as far as that is known, `end` its clean end, `first_ns` and `last_ns` the
    first and the last sign of life, in ns of its clock domain.
    """

    def __init__(self, process: schema.Process) -> None:
        self.process = process
        self.end: schema.End | None = None
        #: (monotonic, realtime) pairs, folded: those that agree are two of them.
        self.clocks: list[ClockPair] = []
        self.damage: list[Damage] = []
        self.first_ns = process.start_ns
        self.last_ns = process.start_ns

    @property
    def key(self) -> tuple[str, str]:
        """(host, incarnation): no other process has it."""
        return self.process.host, self.process.incarnation

    @property
    def clock_pairs(self) -> list[ClockPair]:
        """The pairs; the one from the process line only if there is no other."""
        start = ClockPair(self.process.start_ns, self.process.start_unix_ns, _START_PAIR_ERROR_NS)
        return self.clocks or [start]


class ProcessRecords(ProcessSeen):
    """What one process wrote.

    Kept in memory: its identity (`process`, brought up to date by `Identity` lines), thread
    names, clock pairs, drops, still open phases, the end, damage, and per rollout the extent of its
    records. `phases`, `marks` and `devices` read the files again.
    All times are ns of the process's clock domain.
    """

    def __init__(self, segments: list[Segment], process: schema.Process) -> None:
        super().__init__(process)
        self.segments = segments
        self.threads: dict[int, str] = {}
        self.phase_defs: dict[str, schema.PhaseDef] = {}
        self.drops: list[schema.Drop] = []
        self.opens: list[schema.Open] = []
        #: Lines by kind, as read once.
        self.counts: Counter[str] = Counter()
        #: (first start, last end) of the records of each rollout.
        self.extents: dict[Rollout, tuple[int, int]] = {}
        #: Rollout of each (source, sync) and of each weight version that its records name.
        self.syncs: dict[tuple[str, int], Rollout] = {}
        self.weight_versions: dict[str, Rollout] = {}
        #: Those that one source gave to several of its syncs.
        self.reused_versions: set[str] = set()
        self._version_syncs: dict[tuple[str, str], int] = {}
        #: Phases whose brackets are there and they themselves are not.
        self.orphan_brackets: set[int] = set()
        #: What each block of the segments holds.
        self.blocks: list[Block] = []

    @property
    def source(self) -> str:
        """This process as the sender of a weight sync; equal to ``timeline.source()`` there."""
        return f"{self.process.role}-{self.process.rank}@{self.process.incarnation}"

    def note_version(self, version: str, source: str, sync: int, rollout: Rollout) -> None:
        """A record of `rollout` says that this sync brought `version`."""
        self.weight_versions.setdefault(version, rollout)
        if self._version_syncs.setdefault((version, source), sync) != sync:
            self.reused_versions.add(version)

    def items(self, wanted: Callable[[Block], bool] | None = None) -> Iterator[RecordLine]:
        """Every line in order with its unknown fields, read from the files.

        With `wanted`, only the lines of those blocks.
        """
        chosen = {(b.segment, b.number) for b in self.blocks if wanted is None or wanted(b)}
        for index, segment in enumerate(self.segments):
            numbers = {number for owner, number in chosen if owner == index}
            if numbers:
                for _, items in read_line_blocks(segment, [], numbers.__contains__):
                    yield from items

    def lines(self) -> Iterator[schema.Line | schema.Unknown]:
        """Every line in order, read from the files."""
        return (item.line for item in self.items())

    def phases(self) -> Iterator[schema.Phase]:
        """The phases that have ended, in the order in which they did."""
        return (line for line in self.lines() if isinstance(line, schema.Phase))

    def marks(self) -> Iterator[schema.Mark]:
        """The marks."""
        return (line for line in self.lines() if isinstance(line, schema.Mark))

    def devices(self) -> Iterator[schema.Device]:
        """The device-event brackets."""
        return (line for line in self.lines() if isinstance(line, schema.Device))


def scan_process(segments: list[Segment], process: schema.Process) -> ProcessRecords:
    """Read all lines once and keep the summary.

    Raises `LinesRefusedError` and `ReadError` as `read_lines` does.
    """
    records = ProcessRecords(segments, process)
    opens: dict[int, schema.Open] = {}
    known = KnownPhases()
    clocks = PairFolder()
    for index, segment in enumerate(segments):
        for number, items in read_line_blocks(segment, records.damage):
            block = Block(index, number)
            for item in items:
                block.note(item)
                records.counts[item.kind] += 1
                _note(records, item.line, opens, clocks)
                _note_bracket(records, block, item.line, known)
            records.blocks.append(block)
    records.clocks = clocks.pairs()
    if opens:  # a phase may have been written before the line that says it is open
        for phase in records.phases():
            opens.pop(phase.id, None)
    records.opens = list(opens.values())
    return records


def _note(
    records: ProcessRecords,
    line: schema.Line | schema.Unknown,
    opens: dict[int, schema.Open],
    clocks: PairFolder,
) -> None:
    # Ordered by how often each kind is met.
    if isinstance(line, schema.Phase):
        opens.pop(line.id, None)
        _note_span(records, line, line.start_ns + line.dur_ns)
    elif isinstance(line, schema.Device):
        pass
    elif isinstance(line, schema.Open):
        opens[line.id] = line
        _note_span(records, line, line.seen_ns)
    elif isinstance(line, schema.Mark):
        _note_span(records, line, line.start_ns)
    elif isinstance(line, schema.Clock):
        clocks.add(ClockPair(line.mono_ns, line.unix_ns, line.error_ns))
        records.last_ns = max(records.last_ns, line.mono_ns)
    elif isinstance(line, schema.PhaseDef):
        records.phase_defs[line.name] = line
    elif isinstance(line, schema.Thread):
        records.threads[line.tid] = line.name
    elif isinstance(line, (schema.Identity, schema.Process)):
        update_identity(records.process, line)
    elif isinstance(line, schema.Drop):
        records.drops.append(line)
        records.last_ns = max(records.last_ns, line.at_ns)
    elif isinstance(line, schema.End):
        records.end = line
        records.last_ns = max(records.last_ns, line.at_ns)


def _note_bracket(
    records: ProcessRecords, block: Block, line: schema.Line | schema.Unknown, known: KnownPhases
) -> None:
    if isinstance(line, (schema.Phase, schema.Open)):
        known.add(line.id)
    elif isinstance(line, schema.Device) and not known.take(line.id):
        records.orphan_brackets.add(line.id)
        block.placed_by_time = True


def _note_span(records: ProcessRecords, line: schema.Phase | schema.Open | schema.Mark, end: int) -> None:
    if impossible_time(line.start_ns, end) is not None:
        return
    records.first_ns = min(records.first_ns, line.start_ns)
    records.last_ns = max(records.last_ns, end)
    rollout: Rollout = line.rollout  # type: ignore[assignment]
    if rollout is None:
        return
    known = records.extents.get(rollout)
    first, last = known or (line.start_ns, end)
    records.extents[rollout] = (min(first, line.start_ns), max(last, end))
    if line.sync is not None:
        records.syncs.setdefault((line.source or records.source, line.sync), rollout)
        if line.weight_version is not None:
            records.note_version(line.weight_version, line.source or records.source, line.sync, rollout)


def update_identity(process: schema.Process, line: schema.Identity | schema.Process) -> None:
    """Later lines add to what is known; an empty field says nothing."""
    for name in ("role", "rank", "ranks", "world_size", "engine"):
        value = getattr(line, name)
        if value not in (None, {}):
            setattr(process, name, value)
