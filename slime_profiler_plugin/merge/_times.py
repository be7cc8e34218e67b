"""Every time of a run on one clock: the monotonic clock of the reference domain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from slime_profiler_plugin.clock import (
    ASSUMED_WALL_CLOCK,
    SAME_CLOCK,
    Alignment,
    ClockMapping,
    ClockPair,
    align_domains,
    convert_span,
    kineto_unix_ns,
)
from slime_profiler_plugin.read import ProcessRecords, ProcessSeen, TraceFile, TraceWindow

from ._kinds import Ints

#: Times beyond are none, and may not wrap around.
_FARTHEST_NS: Final = 2**62


class RunClocks:
    """The clock domains of a run and how each is brought onto the reference.

    The reference is the driver's domain, else that of the process that started first; for a run
    without records, Unix time itself.
    """

    def __init__(self, processes: Sequence[ProcessSeen], windows: Sequence[TraceWindow] = ()) -> None:
        pairs: dict[str, list[ClockPair]] = defaultdict(list)
        for records in processes:
            pairs[records.process.clock_domain].extend(records.clock_pairs)
        for window in windows:
            domain = window.header.identity.get("clock_domain")
            if isinstance(domain, str):
                pairs[domain].extend(window.header.clock_pairs)
        mappings = {domain: ClockMapping(found) if found else None for domain, found in pairs.items()}
        drivers = [r for r in processes if r.process.role == "driver"]
        first = next(iter(drivers or processes), None)
        self.reference = first.process.clock_domain if first else next(iter(mappings), None)
        self.alignments = {} if self.reference is None else align_domains(mappings, self.reference)

    @property
    def mapping(self) -> ClockMapping | None:
        """The reference clock in terms of Unix time."""
        return self.alignments[self.reference].own if self.reference is not None else None

    def of_process(self, records: ProcessSeen) -> Alignment:
        """How the times in a record file are brought onto the reference."""
        return self.alignments[records.process.clock_domain]

    def of_window(self, window: TraceWindow, records: ProcessRecords | None) -> WindowClock:
        """How the times in a torch.profiler window are brought onto the reference."""
        pairs = [*window.header.clock_pairs, *(records.clock_pairs if records else ())]
        domain = window.header.identity.get("clock_domain")
        if domain is None and records is not None:
            domain = records.process.clock_domain
        return WindowClock(self, self.alignments.get(str(domain)), window, pairs)


class WindowClock:
    """From a window's own times to reference ns, through its process's clock pairs.

    `basis` says what the placement rests on.
    """

    least_ns: Final = 0

    def __init__(
        self,
        clocks: RunClocks,
        alignment: Alignment | None,
        window: TraceWindow,
        pairs: Sequence[ClockPair],
    ) -> None:
        self._base_ns = window.header.base_ns
        self._alignment = alignment
        self._reference = clocks.mapping
        self._own = ClockMapping(pairs) if pairs else (alignment.own if alignment else None)
        # The window's own pairs are read just before it begins.
        self._near_ns = pairs[0].mono_ns if window.header.clock_pairs else None
        self.basis = alignment.basis if alignment else ASSUMED_WALL_CLOCK

    def to_reference(self, relative_ns: int) -> int:
        """Reference ns of a time in the file."""
        unix_ns = kineto_unix_ns(relative_ns, self._base_ns)
        if self._alignment is not None and self._own is not None:
            return self._alignment.to_reference(self._own.mono_ns(unix_ns, self._near_ns))
        return unix_ns if self._reference is None else self._reference.mono_ns(unix_ns)

    def span_to_reference(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """Both ends of something in the file, in reference ns."""
        return convert_span(self.to_reference, start_ns, end_ns)

    def place_all(self, starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
        """Starts and ends in reference ns, of many events at once."""
        shift = self._constant_shift(int(starts.min()), int((starts + lengths).max()))
        if shift is not None:
            shift = max(-_FARTHEST_NS, min(shift, _FARTHEST_NS))
            return starts + shift, starts + shift + lengths
        ends = starts + lengths
        placed = [self.span_to_reference(*span) for span in zip(starts.tolist(), ends.tolist(), strict=True)]
        bounded = np.clip(np.array(placed, dtype=object), -_FARTHEST_NS, _FARTHEST_NS).astype(np.int64)
        return bounded[:, 0], bounded[:, 1]

    def _constant_shift(self, first_ns: int, last_ns: int) -> int | None:
        """What to add to every time from `first_ns` to `last_ns`, where that is one number."""
        if self._own is None or self._own.steps or self.basis != SAME_CLOCK:
            return None
        first, last = (self._own.mono_ns(kineto_unix_ns(t, self._base_ns)) for t in (first_ns, last_ns))
        return None if self._own.constant_offset(first, last) is None else first - first_ns


class UnixClock:
    """From the times of a trace to Unix ns, or to those of a reference clock; its file's base may be absent.

    `least_ns` as in `_survey.Clock`.
    """

    def __init__(self, base_ns: int | None, least_ns: int, reference: ClockMapping | None = None) -> None:
        self.least_ns = least_ns
        self._base_ns = base_ns or 0
        self._reference = reference

    @classmethod
    def of(cls, trace: TraceFile, reference: ClockMapping | None) -> UnixClock:
        """For `trace`; only in Nsight's, events may begin before the time that all count from."""
        base = trace.header.base_ns
        if base is not None and abs(base) >= _FARTHEST_NS:
            base = None
        return cls(base, -_FARTHEST_NS if trace.format == "nsys" else 0, reference)

    def place_all(self, starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
        """Starts and ends."""
        unix = starts + self._base_ns
        if self._reference is None:
            return unix, unix + lengths
        placed = np.array([self._reference.mono_ns(at) for at in unix.tolist()], dtype=np.int64)
        return placed, placed + lengths
