"""What a trace is called that says little or nothing of itself."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from slime_profiler_plugin.phases import role_order
from slime_profiler_plugin.read import Owner, TraceFile, stem_of

from ._tracks import DOT, format_ranks

#: What the times of a trace are, in reports and names.
WALL_CLOCK: Final = "wall clock"
UNKNOWN_CLOCK: Final = "clock unknown"
#: Formats of files that hold the events of several ranks.
_OF_MANY: Final = frozenset({"ray", "nsys"})


def name_trace(owner: Owner, path: Path, written_by: str = "") -> str:
    """Who recorded a trace: ``rank 3``, ``engine · tp0``, else ``rank unknown`` and the name of its file.

    What is of many processes (`written_by` Ray or Nsight Systems) is called by that; samples that slime
    dumped are called by their rollout.

    >>> name_trace(Owner(rank=3), Path("x.json")), name_trace(Owner(), Path("gpu07.json"))
    ('rank 3', 'rank unknown · gpu07')
    """
    if written_by in _OF_MANY:
        return DOT.join([written_by, stem_of(path.name)])
    if written_by == "samples":
        return owner.detail
    parts = [] if owner.role is None else [owner.role]
    if owner.rank is not None and owner.role != "engine":
        parts = [f"{owner.role} rank {owner.rank}" if owner.role else f"rank {owner.rank}"]
    if owner.ranks:
        parts.append(format_ranks(owner.ranks))
    is_known = owner.role is not None or owner.rank is not None or bool(owner.ranks)
    if owner.role == "engine" and owner.detail:
        parts.append(owner.detail)
    if not is_known:
        parts = ["rank unknown", stem_of(path.name)]
    return DOT.join(parts)


def name_traces(traces: Sequence[TraceFile]) -> list[str]:
    """A name for each; where some are alike, what tells their files apart is added.

    That is what their names say, else their suffixes, else the folder, else the way there from the folder
    that they have in common: never where on the machine they lie.
    """
    names = [name_trace(trace.owner, trace.path, trace.format) for trace in traces]
    paths = [trace.path.absolute() for trace in traces]
    for tell in (
        lambda path, _: stem_of(path.name),
        lambda path, _: path.name,
        lambda path, _: path.parent.name,
        os.path.relpath,
    ):
        alike: dict[str, list[int]] = defaultdict(list)
        for number, name in enumerate(names):
            alike[name].append(number)
        for name, numbers in alike.items():
            common = os.path.commonpath([paths[number].parent for number in numbers])
            told = [tell(paths[number], common) for number in numbers]
            if len(set(told)) > 1:
                for number, word in zip(numbers, told, strict=True):
                    names[number] = name if word in name.split(DOT) else f"{name}{DOT}{word}"
    return names


def trace_order(trace: TraceFile) -> tuple[Any, ...]:
    """Sort key: by role, rank, parallel ranks, then by file, whatever the order they are named in."""
    owner = trace.owner
    return (
        role_order(owner.role),
        owner.rank is None,
        owner.rank or 0,
        sorted(owner.ranks.items()),
        owner.detail,
        trace.path.name,
        str(trace.path),
    )
