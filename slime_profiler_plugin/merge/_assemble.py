"""The second half of every merge: from surveyed sources to a file."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from slime_profiler_plugin.read import Damage, TraceFile, TraceRefusedError

from ._arrows import join_arrows
from ._budget import Thresholds, choose_thresholds
from ._flows import IdSource
from ._ledger import Ledger
from ._notes import Note
from ._options import MergeOptions
from ._records import RecordSource
from ._rewrite import Late, RewriteTask, rewrite_trace
from ._rollouts import MergeError
from ._survey import Survey, SurveyTask, survey_trace
from ._trace import TraceSource
from ._tracks import Tracks
from ._workers import Workers, core_count
from ._writer import TraceWriter

Task = TypeVar("Task")
Result = TypeVar("Result")

#: A name that nobody chose.
_SCRATCH: Final = re.compile(r"/\.[^/]+\.tmp(/|$)")
#: A record, written out, is about this long; bytes.
_RECORD_SIZE: Final = 400


class Written(NamedTuple):
    """What was written: `size` bytes of text, `counts` of what is in it, `mended` by what was done."""

    events: int
    size: int
    arrows_drawn: Counter[str]
    arrows_not_drawn: Counter[str]
    counts: Counter[str]
    mended: Counter[str]
    thresholds: Thresholds
    total: Ledger


class Canvas(NamedTuple):
    """What the events of an output are put onto: its processes and threads, ids for arrows, notes that stand
    beside the events, and the time that theirs are relative to."""

    tracks: Tracks
    ids: IdSource
    notes: Sequence[Note]
    origin_ns: int


class Frame(NamedTuple):
    """The top-level keys of an output: before its events, and behind them, where what was written is told."""

    head: dict[str, Any]
    tail: Callable[[Written], dict[str, Any]]


@contextmanager
def scratch_folder(out: Path) -> Iterator[Path]:
    """A folder for what is kept between the two readings, on the disk of the output; it is removed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent) as folder:
            yield Path(folder)
    except OSError as error:
        if error.filename is None or _SCRATCH.search(str(error.filename)):
            error.filename, error.filename2 = str(out), None
        raise


class Readings:
    """Both readings of the traces of a merge, by its workers, with one progress for all."""

    def __init__(self, options: MergeOptions) -> None:
        self._options = options
        self._jobs = options.jobs or core_count()

    def survey(self, sources: Sequence[TraceSource], folder: Path) -> None:
        """Survey every source; `folder` takes what the surveys leave.

        One that does not fit into memory is refused, and no other is the worse for it.
        """
        tasks = []
        for number, source in enumerate(sources):
            own = folder / str(number)
            own.mkdir()
            tasks.append(source.survey_task(own, self._options))
        traces = [source.trace for source in sources]
        surveys = self.run(_survey_or_refuse, tasks, traces, "reading")
        for source, survey in zip(sources, surveys, strict=True):
            if isinstance(survey, Damage):
                source.refuse(survey)
            else:
                source.take_survey(survey)

    def rewrite(
        self, sources: Sequence[TraceSource], origin_ns: int, late: Late, folder: Path, writer: TraceWriter
    ) -> Generator[TraceSource, None, None]:
        """Write every source; each is given when its part is whole, to be appended."""
        tasks: list[RewriteTask] = []
        for number, source in enumerate(sources):
            part = folder / f"{number}.part"
            tasks.append(source.rewrite_task(origin_ns, late, part, compress=writer.is_compressed))
        traces = [source.trace for source in sources]
        results = self.run(rewrite_trace, tasks, traces, "writing")
        for task, source, written in zip(tasks, sources, results, strict=True):
            source.take_written(written)
            writer.append(written.part, task.part)
            yield source

    def run(
        self,
        work: Callable[[Task, Callable[[int], None]], Result],
        tasks: Sequence[Task],
        traces: Sequence[TraceFile],
        doing: str,
    ) -> Iterator[Result]:
        """The results of `work` on each task, in their order; each task reads one of `traces`."""
        sizes = [_size(trace.path) for trace in traces]
        progress = self._options.progress

        def tell(done: int) -> None:
            if progress is not None:
                progress(doing, min(done, sum(sizes)), sum(sizes))

        yield from Workers(work, self._jobs).run(tasks, sizes, tell)


def _survey_or_refuse(task: SurveyTask, advance: Callable[[int], None]) -> Survey | Damage:
    """What `survey_trace` gives, or why it has nothing to give."""
    try:
        return survey_trace(task, advance)
    except (TraceRefusedError, MergeError) as error:  # samples are loaded only here
        path = str(task.trace.path)
        return Damage(path, "refused", str(error).removeprefix(path).lstrip(": ").rstrip())


def write_output(
    path: Path,
    folder: Path,
    sources: Sequence[RecordSource | TraceSource],
    others: Sequence[Ledger],
    canvas: Canvas,
    frame: Frame,
    options: MergeOptions,
) -> Written:
    """Write surveyed sources, in their order, onto `canvas`; `others` are only counted."""
    origin_ns = canvas.origin_ns
    traces = [source for source in sources if isinstance(source, TraceSource)]
    records = [source for source in sources if isinstance(source, RecordSource)]
    late = _late(traces, records, origin_ns, options)
    for record in records:
        record.window = late.window
    arrows = join_arrows((end for record in records for end in record.endpoints_inside()), canvas.ids)
    total = Ledger(source="all")
    counts, mended = Counter[str](), Counter[str]()
    events = 0
    with TraceWriter(path, frame.head) as writer, ExitStack() as stack:
        writer.write_values(list(canvas.tracks.metadata_events()))
        writer.write_values([note.event(origin_ns) for note in canvas.notes])
        # Closed with the block, whatever ends it: no worker outlives what it writes into.
        rewritten = stack.enter_context(
            closing(Readings(options).rewrite(traces, origin_ns, late, folder, writer))
        )
        for source in sources:
            if isinstance(source, TraceSource):
                done = next(rewritten)
                assert done is source, "parts come in order"
                counts.update(source.counts)
                mended.update(source.mended)
                events += source.events
                _check_written(source.ledger, source.events)
            else:
                written = 0
                for batch in source.events(origin_ns):
                    written += len(batch)
                    writer.write(batch)
                events += written
                _check_written(source.ledger, written)
                if source.pid is not None:
                    writer.write([end.encode(origin_ns) for end in arrows.ends.get(source.pid, ())])
            total.add(source.ledger)
        next(rewritten, None)
        for other in others:
            total.add(other)
        total.check()
        result = Written(
            events, writer.size, arrows.drawn, arrows.undrawn, counts, mended, late.thresholds, total
        )
        writer.finish(frame.tail(result))
        return result._replace(size=writer.size)


def _late(
    traces: Sequence[TraceSource], records: Sequence[RecordSource], origin_ns: int, options: MergeOptions
) -> Late:
    window = options.window_ns
    if window is not None:
        window = origin_ns + window[0], origin_ns + window[1]
    thresholds = Thresholds()
    if options.budget_bytes:
        sizes = [source.survey.sizes for source in traces if source.survey.sizes is not None]
        fixed = _RECORD_SIZE * sum(source.ledger.written for source in records)
        thresholds = choose_thresholds(sizes, fixed, options.budget_bytes)
    return Late(window, thresholds)


def _check_written(ledger: Ledger, written: int) -> None:
    if written != ledger.written:
        counted = Ledger(source=f"{ledger.source}, second reading", read=ledger.written, written=written)
        counted.check()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # the reading itself says what is wrong
        return 0
