"""One pass over a file for its events and one for its text: everything that the rules look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from slime_profiler_plugin.clock import EARLIEST_UNIX_NS
from slime_profiler_plugin.read import (
    FIX_KEY,
    MERGE_KEY,
    Damage,
    Owner,
    ReadError,
    TraceFile,
    TraceRefusedError,
    open_trace,
    read_blocks,
    read_header,
    read_pieces,
)

from ._collect import Collector
from ._events import Array, Events
from ._text import TextSurvey

#: Formats of what torch.profiler wrote: SGLang and we only name the file.
OF_TORCH: Final = ("kineto", "sglang", "ours")
#: Format of what was made of other traces; no merge takes it.
MERGED: Final = "merged"
#: A time of 0 is a failed record where the others are at least this far from 0: one hour.
_FAR_NS: Final = 3600 * 10**9


@dataclass
class FileSurvey:
    """Everything that the rules look at. `refused`: why the file is no trace; then all else is empty."""

    path: Path
    trace: TraceFile | None = None
    refused: str | None = None
    unreadable: str | None = None
    damage: list[Damage] = field(default_factory=list)
    text: TextSurvey = field(default_factory=TextSurvey)
    events: Events = field(default_factory=Events)
    total: int = 0

    def shrink(self) -> None:
        """Keep what is compared with other files; what follows from the rest is worked out first."""
        _ = self.clock, self.is_ours
        if self.trace is not None:
            self.trace = self.trace._replace(header=self.trace.header._replace(metadata={}))
        self.__dict__.pop("failed", None)
        self.damage = []
        self.text = TextSurvey()
        self.events.shrink()

    @property
    def base_ns(self) -> int | None:
        """The Unix time that the times are relative to, where the file says it."""
        return None if self.trace is None else self.trace.header.base_ns

    @cached_property
    def failed(self) -> Array:
        """Events at time 0 where all others are far from it: records that failed."""
        events = self.events
        starts = events.start[events.timed]
        zero: Array = events.timed[starts == 0]
        others = starts[starts > 0]
        is_far = len(others) and others.min() > _FAR_NS and not self.is_ours
        return zero if is_far else np.empty(0, np.int64)

    @cached_property
    def is_ours(self) -> bool:
        """Whether our own merge wrote the file: its times count from its first event."""
        keys = set() if self.trace is None else set(self.trace.header.metadata)
        return bool(keys & {MERGE_KEY, FIX_KEY})

    @cached_property
    def is_merged(self) -> bool:
        """Whether it holds the events of several files."""
        return self.trace is not None and MERGE_KEY in self.trace.header.metadata

    @property
    def is_of_torch(self) -> bool:
        """Whether torch.profiler wrote it, which has habits that are no faults."""
        return self.trace is not None and self.trace.format in OF_TORCH

    @property
    def has_given_ids(self) -> bool:
        """Whether the ids are those that our reader gives: a report of Nsight Systems, samples of slime's."""
        return self.trace is not None and self.trace.format in ("nsys", "samples")

    @cached_property
    def clock(self) -> str:
        """``based``, ``absolute`` (Unix time), ``unknown``, or ``none`` where there is no event."""
        if self.base_ns is not None:
            return "based"
        starts = self.events.start[self.events.timed]
        starts = starts[starts > 0]
        if not len(starts):
            return "none"
        return "absolute" if np.median(starts) >= EARLIEST_UNIX_NS else "unknown"


def survey_file(path: Path) -> FileSurvey:
    """What is in the file at `path`, whatever it is; a merged trace is looked at as any other."""
    try:
        return survey_trace(_open(path))
    except TraceRefusedError as error:
        return FileSurvey(path, refused=without_path(error, path))
    except ReadError as error:
        return FileSurvey(path, unreadable=without_path(error, path))


def _open(path: Path) -> TraceFile:
    try:
        return open_trace(path)
    except TraceRefusedError as error:
        if not error.is_merged:
            raise
        return TraceFile(path, MERGED, read_header(path), Owner())


def survey_trace(trace: TraceFile) -> FileSurvey:
    """Read a trace once for its events and once for its text. Raises `ReadError`."""
    survey = FileSurvey(trace.path, trace)
    collected = Collector(survey.events)
    for piece in read_pieces(trace, survey.damage):
        survey.total += len(piece)
        collected.add(piece)
    collected.finish()
    if not survey.has_given_ids:
        _read_text(survey)
    return survey


def _read_text(survey: FileSurvey) -> None:
    survey.text.add(read_blocks(survey.path, []))


def without_path(error: Exception, path: Path) -> str:
    """What an error of `path` says, less its name."""
    return str(error).removeprefix(f"{path}: ")
