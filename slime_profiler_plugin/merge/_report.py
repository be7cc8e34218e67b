"""What a merge did, as data: for the command line, for other tools, for tests."""

from __future__ import annotations

from typing import Any, Final

import msgspec

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
    records that name one of them. It is empty where only windows do.
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
    total: Ledger
    sources: list[Ledger]


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
    """The whole of it."""

    run_id: str
    attempts: list[int]
    outputs: list[OutputReport]
    processes: list[ProcessReport]
    ranks: list[RanksReport]
    damage: list[DamageReport]
    warnings: list[str]
    ignored: list[str]

    def exit_code(self, *, allow_partial: bool = False) -> int:
        """0: clean. 1: nothing was written. 3: written, but a source was truncated, refused or missing.

        `allow_partial` makes 3 a 0.
        """
        if not self.outputs:
            return 1
        partial = any(d.kind in _LOSSES for d in self.damage) or any(r.missing for r in self.ranks)
        return 3 if partial and not allow_partial else 0

    def to_builtins(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]
