"""What a merge did, as data: for the command line, for other tools, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from slime_profiler_plugin.read import Damage

from ._archive import Archived
from ._assemble import Written
from ._ledger import Ledger

#: Kinds of damage that mean that a part of a source is not in the output.
_LOSSES: Final = frozenset({"truncated", "corrupt", "refused", "missing", "differs"})


class OutputReport(msgspec.Struct, kw_only=True):
    """One file that was written.

    `base_ns` is the time that its ``ts`` are relative to, on the reference clock; `base_unix_ns` the
    same moment in Unix time. `sources` account for everything that was read; `events` came from them,
    `notes` are slices that say what the file is and who is missing. `arrows` are all that were drawn,
    `arrows_drawn` those from and to phases of the same names, `arrows_not_drawn` the others by reason.
    `lasted_ns` is how long its rollouts took, by attempt: from the first start to the last end of the
    records that name one of them. It is empty where only windows do. `size` is bytes of text, before it is
    compressed. `counts` say what the events of traces are and what becomes of their arrows, `mended` which of
    them are written other than they were read. Slices shorter than `kernel_threshold_ns`, if kernels, or
    `slice_threshold_ns` were dropped for the budget; 0: none. `archive`: the ZIP that was asked for,
    `not_archived`: files of kinds that it cannot hold, `archive_failed`: why it could not be written.
    """

    path: str
    rollouts: list[int | str]
    lasted_ns: dict[int, int]
    events: int
    notes: int
    arrows: int
    arrows_drawn: dict[str, int]
    arrows_not_drawn: dict[str, int]
    base_ns: int
    base_unix_ns: int | None
    size: int
    counts: dict[str, int]
    mended: dict[str, int]
    kernel_threshold_ns: int
    slice_threshold_ns: int
    total: Ledger
    sources: list[Ledger]
    archive: str | None = None
    not_archived: list[str] = []
    archive_failed: str | None = None

    @classmethod
    def of(
        cls,
        written: Written,
        *,
        path: Path,
        rollouts: list[int | str],
        lasted_ns: dict[int, int],
        notes: int,
        base_ns: int,
        base_unix_ns: int | None,
        sources: list[Ledger],
    ) -> OutputReport:
        """From what was written, and what is known beside it."""
        return cls(
            path=str(path),
            rollouts=rollouts,
            lasted_ns=lasted_ns,
            events=written.events,
            notes=notes,
            arrows=written.arrows_drawn.total() + written.counts["arrows"],
            arrows_drawn=dict(written.arrows_drawn),
            arrows_not_drawn=dict(written.arrows_not_drawn),
            base_ns=base_ns,
            base_unix_ns=base_unix_ns,
            size=written.size,
            counts=dict(written.counts),
            mended=dict(written.mended),
            kernel_threshold_ns=written.thresholds.kernel_ns,
            slice_threshold_ns=written.thresholds.other_ns,
            total=written.total,
            sources=sources,
        )

    def tell_empty(self) -> list[str]:
        """That nothing of what was asked for is there."""
        return [] if self.events else [f"{Path(self.path).name}: no event is of what was asked for"]

    def note_archive(self, archived: Archived) -> None:
        """What became of the archive that was asked for."""
        self.archive, self.not_archived, self.archive_failed = archived


class InputReport(msgspec.Struct, kw_only=True):
    """A trace that belongs to no run: its file, what it is, who recorded it, on which clock.

    `clock_check` is how far a report of Nsight Systems is from the records of its run (`ClockCheck`, ns).
    """

    file: str
    format: str
    name: str
    clock: str
    clock_check: dict[str, int | None] | None = None


class ProcessReport(msgspec.Struct, kw_only=True):
    """One process of the run: who it is, how its clock was placed, how it ended.

    `replaced_by` is the number of the incarnation that took the place of one that ended early.
    """

    name: str
    attempt: int
    role: str | None
    rank: int | None
    host: str
    pid: int
    incarnation: str
    clock_domain: str
    clock: str
    ending: str
    replaced_by: int | None
    open_phases: dict[str, int]
    dropped: dict[str, int]


class RanksReport(msgspec.Struct, kw_only=True):
    """``n of m ranks seen``."""

    attempt: int
    role: str
    seen: int
    world_size: int | None
    missing: list[int]


class DamageReport(msgspec.Struct, kw_only=True):
    """Something that could not be read as it should; `kind` as in `read.Damage`."""

    file: str
    kind: str
    reason: str
    line: int | None = None
    lost: int = 0


class MergeReport(msgspec.Struct, kw_only=True):
    """The whole of it.

    `run_id` is ``None`` where there is no run, only traces. `ignored` are files that are no source,
    `left_out` sources that were not asked for.
    """

    run_id: str | None
    attempts: list[int]
    outputs: list[OutputReport]
    processes: list[ProcessReport]
    inputs: list[InputReport]
    ranks: list[RanksReport]
    damage: list[DamageReport]
    warnings: list[str]
    ignored: list[str]
    left_out: list[str]

    def exit_code(self, *, allow_partial: bool = False) -> int:
        """0: clean. 1: nothing was written. 3: written, but a source was truncated, refused or missing.

        `allow_partial` makes 3 a 0.
        """
        if not self.outputs:
            return 1
        partial = any(d.kind in _LOSSES for d in self.damage) or any(r.missing for r in self.ranks)
        partial |= any(output.archive_failed is not None for output in self.outputs)
        return 3 if partial and not allow_partial else 0

    def to_builtins(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


def report_damage(damage: Damage) -> DamageReport:
    """For the report."""
    return DamageReport(
        file=damage.file, kind=damage.kind, reason=damage.reason, line=damage.line, lost=damage.lost
    )


def conservation(written: Written, notes: int, sources: list[Ledger]) -> dict[str, Any]:
    """What an output says of itself: what became of everything that was read."""
    return {
        "total": written.total,
        "notes": notes,
        "sources": sources,
        "counts": written.counts,
        "mended": written.mended,
        "arrows": written.arrows_drawn.total() + written.counts["arrows"],
        "arrows_drawn": written.arrows_drawn,
        "arrows_not_drawn": written.arrows_not_drawn,
    }
