"""A trace file as a source of an output."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Final

from slime_profiler_plugin.read import Damage, TraceFile, read_pieces

from ._flows import IdSource
from ._ledger import Ledger
from ._options import MergeOptions
from ._rewrite import Late, RewriteTask, Rewritten
from ._survey import Clock, Survey, SurveyTask
from ._track_names import TrackKey, TrackNames
from ._tracks import DOT, Tracks

#: What was done where slices cross on one track.
MOVED: Final = "row added for slices that cross those of another"


class TraceSource:
    """The events of one trace that belong to an output.

    It is surveyed by a worker (`survey_task`, `take_survey`), takes its place among the tracks (`claim`), and
    is written by a worker (`rewrite_task`, `take_written`). `name` and `labels` are what its processes are
    called.
    """

    def __init__(
        self,
        trace: TraceFile,
        clock: Clock,
        stretches: list[tuple[float, float]],
        shown: tuple[str, str],
        annotation: bytes = b"",
    ) -> None:
        self.trace = trace
        self.name, self.labels = shown
        self.ledger = Ledger(source=f"{self.name} ({trace.path.name})")
        self.damage: list[Damage] = []
        self.is_refused = False
        #: Earliest start and latest end of what belongs to the output (its clock, ns), when it is surveyed.
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        #: What to add to its times: none, for a clock that is known.
        self.shift_ns = 0
        self.events = 0
        self.counts: Counter[str] = Counter()
        self.mended: Counter[str] = Counter()
        self._clock = clock
        self._stretches = stretches
        self._annotation = annotation
        self._tracks: list[tuple[int, int]] = []
        self._first_flow = self._first_async = 0
        self._survey: Survey | None = None

    @property
    def survey(self) -> Survey:
        """What the survey found."""
        assert self._survey is not None, "not surveyed yet"
        return self._survey

    def survey_task(self, folder: Path, options: MergeOptions) -> SurveyTask:
        """For `survey_trace`; `folder` takes what it leaves."""
        self._folder = folder
        return SurveyTask(
            self.trace,
            self.ledger.source,
            self._clock,
            self._stretches,
            options.categories,
            options.min_duration_ns,
            options.budget_bytes > 0,
            folder,
        )

    def take_survey(self, survey: Survey) -> None:
        """What a worker found."""
        self._survey = survey
        self.ledger = survey.ledger
        self.damage = survey.damage
        self.first_ns, self.last_ns = survey.first_ns, survey.last_ns

    def refuse(self, damage: Damage) -> None:
        """It could not be surveyed: it takes no part in what follows."""
        self.damage = [damage]
        self.is_refused = True

    @property
    def offset_ns(self) -> int:
        """What leads from the times of the file to those of the output's clock, at its first event."""
        return self.survey.offset_ns + self.shift_ns

    def claim(self, tracks: Tracks, ids: IdSource) -> None:
        """Take numbers for processes, threads and arrows."""
        survey = self.survey
        lanes: dict[TrackKey, list[int]] = defaultdict(list)
        for key, lane in survey.rows:
            lanes[key].append(lane)
        by_process: dict[Hashable, list[TrackKey]] = defaultdict(list)
        for key in lanes:
            by_process[key[0]].append(key)
        qualifiers = ["truncated"] if any(d.kind == "truncated" for d in self.damage) else []
        claimed: dict[tuple[TrackKey, int], tuple[int, int]] = {}
        names = survey.names
        for process in sorted(by_process, key=names.process_order):
            name = self._name_part(qualifiers, names.part(process))
            pid = tracks.add_process(name, self.labels)
            for key in sorted(by_process[process], key=names.thread_order):
                for lane in sorted(lanes[key]):
                    claimed[key, lane] = pid, tracks.add_thread(pid, names.thread(key))
        if not survey.rows:  # a file may only name processes
            for process in names.named_processes():
                tracks.add_process(self._name_part(qualifiers, names.part(process)), self.labels)
        self._tracks = [claimed[row] for row in survey.rows]
        added = sum(lane > 0 for _, lane in survey.rows)
        if added:
            self.mended[MOVED] = added
        # Nobody needs it any more, and there may be a thousand of them.
        self._survey = survey._replace(names=TrackNames(None), rows=[])
        self._first_flow = ids.reserve(survey.flows)
        self._first_async = ids.reserve(survey.asyncs)

    def _name_part(self, qualifiers: list[str], part: str) -> str:
        """Of samples that slime dumped there is one process, which is called what the file is."""
        is_said = self.trace.format == "samples"
        return DOT.join([self.name, *qualifiers, *([] if is_said else [part])])

    def rewrite_task(self, origin_ns: int, late: Late, part: Path, *, compress: bool) -> RewriteTask:
        """For `rewrite_trace`: times are written relative to `origin_ns`."""
        window = late.window
        if window is not None:
            window = window[0] - self.shift_ns, window[1] - self.shift_ns
        return RewriteTask(
            self.trace,
            self.ledger.source,
            self._folder,
            self._tracks,
            self.shift_ns - origin_ns,
            self._first_flow,
            self._first_async,
            self._annotation,
            late._replace(window=window),
            part,
            compress,
        )

    def take_written(self, written: Rewritten) -> None:
        """What a worker wrote."""
        self.events, self.counts = written.events, written.counts
        self.mended += self.survey.mended + written.mended
        self.ledger.written -= written.dropped.total()
        self.ledger.dropped.update(written.dropped)


def count_other(trace: TraceFile, advance: Callable[[int], None]) -> tuple[Ledger, list[Damage]]:
    """A trace of which nothing belongs to the output: its events are counted."""
    damage: list[Damage] = []
    read = described = 0
    for piece in read_pieces(trace, damage, advance):
        read += len(piece)
        described += sum(event.ph == "M" for event in piece)
    ledger = Ledger(
        source=f"other rollouts ({trace.path.name})",
        read=read,
        described=described,
        other_rollouts=read - described,
    )
    return ledger, damage
