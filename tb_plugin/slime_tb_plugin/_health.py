"""How far the numbers of a run can be trusted: who is missing, what was lost, whose clock is assumed."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from slime_profiler_plugin.merge import (
    find_endings,
    find_replacements,
    format_ending,
    format_missing,
    name_processes,
    presentation_order,
)
from slime_profiler_plugin.read import Damage, count_ranks, glance_processes

from ._answers import HealthProcess
from ._live_tables import Snapshot

#: Stretches of ranks that are named.
_NAMED_MISSING: Final = 20
_CLOCKS: Final = "SELECT host, pid, incarnation, clock_basis FROM processes"
_DROPS: Final = """
SELECT p.host, p.pid, p.incarnation, concat(d.what, ': ', d.reason), CAST(sum(d.count) AS BIGINT)
FROM drops d JOIN processes p USING (process) GROUP BY ALL ORDER BY ALL
"""
_OPEN: Final = """
SELECT p.host, p.pid, p.incarnation, x.name, count(*) FROM phases x JOIN processes p USING (process)
WHERE x.is_open GROUP BY ALL ORDER BY ALL
"""
_DAMAGE: Final = "SELECT path, kind, reason, line, lost FROM damage ORDER BY path, line"


class Health:
    """What there is to say of the run in `folder`.

    A glance at its files, as ``slime-profiler ls`` takes it, tells who the processes are and how they ended,
    the tables what they recorded.
    """

    def __init__(self, folder: Path, snapshot: Snapshot) -> None:
        damage: list[Damage] = []
        ignored: list[Path] = []
        self._seen = glance_processes(folder, damage, ignored)
        self._attempts = {seen.process.attempt for seen in self._seen}
        clocks, drops, still_open, damaged = snapshot.ask(
            lambda tables: [tables.sql(query).rows for query in (_CLOCKS, _DROPS, _OPEN, _DAMAGE)]
        )
        self._clocks = {tuple(key): basis for *key, basis in clocks}
        self._dropped = _count(drops)
        self._open = _count(still_open)
        found = [Damage(*row) for row in damaged]
        named = {each.file for each in found}
        # Of a file that both looked at, the tables know all.
        found += [each for each in damage if each.file not in named]
        self.damage = list(dict.fromkeys(map(str, found)))
        self.ignored = [str(path) for path in ignored]

    def processes(self) -> list[HealthProcess]:
        """Every process, the driver first."""
        endings = find_endings(self._seen)
        replaced = find_replacements(self._seen, endings)
        names = name_processes(self._seen, len(self._attempts) > 1)
        told = []
        for seen in sorted(self._seen, key=lambda each: presentation_order(each.process)):
            process = seen.process
            key = (process.host, process.pid, process.incarnation)
            still = self._open.get(key, {})
            told.append(
                HealthProcess(
                    name=names[seen.key],
                    attempt=process.attempt,
                    host=process.host,
                    pid=process.pid,
                    clock=self._clocks.get(key, ""),
                    clock_error_ns=min(pair.error_ns for pair in seen.clock_pairs),
                    ending=format_ending(endings[seen.key], replaced.get(seen.key), still),
                    open_phases=still,
                    dropped=self._dropped.get(key, {}),
                    versions=process.versions,
                    bytes=seen.bytes,
                )
            )
        return told

    def missing(self) -> list[str]:
        """In words, which ranks left no record."""
        return [
            format_missing(ranks.role, len(ranks.seen), ranks.world_size, ranks.missing, _NAMED_MISSING)
            + (f" (attempt {ranks.attempt})" if len(self._attempts) > 1 else "")
            for ranks in count_ranks(seen.process for seen in self._seen)
            if ranks.missing
        ]


def _count(rows: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], dict[str, int]]:
    found: dict[tuple[Any, ...], dict[str, int]] = defaultdict(dict)
    for *key, name, count in rows:
        found[tuple(key)][name] = count
    return found
