"""Scalars of each rollout, for TensorBoard's own Scalars tab."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, Final, NamedTuple

from slime_profiler_plugin.merge import NO_END, find_endings
from slime_profiler_plugin.read import glance_processes

from ._column import TableColumn
from ._event_file import Step, update_event_file
from ._report import RunTables
from ._rollout_view import COLUMNS as ROLLOUT_COLUMNS
from ._sync_view import PIECE_COLUMNS, SYNC_COLUMNS

#: A name that TensorBoard reads and nobody else writes.
_FILE: Final = "events.out.tfevents.slime-profiler"
_SHARES: Final = ("wall", "generate", "train", "sync", "eval", "other", "idle", "overlap")
_ROLLOUT: Final = tuple(f"{name}_ms" for name in _SHARES)
_SYNC: Final = ("wall_ms", "exposed_ms", "hidden_ms", "bound_ratio", "named_part", *PIECE_COLUMNS)
_OF_LONGEST: Final = "of the source whose sync took longest"
_BYTES_TOLD: Final = "B; sum over the sources of a rollout's syncs"
_RATE_TOLD: Final = "GB/s; sync/bytes over sync/wall_ms; 1 GB = 10^9 B"
_SLOWEST_TOLD: Final = (
    "ratio; host time in the phase of the rank that took longest over the median of its peers, which are the "
    "processes of its role and pipeline rank; 1: none stands out"
)

#: Per attempt and process that takes part in every rollout, the last numbered one it came to.
_REACHED: Final = """
SELECT p.attempt, p.host, p.incarnation, max(x.rollout) FROM rank_phases x JOIN processes p USING (process)
WHERE x.rollout IS NOT NULL AND p.role IN ('driver', 'actor', 'critic') GROUP BY ALL
"""
_ENDS: Final = """
WITH reference AS (SELECT start_unix_ns - start_ns AS ahead FROM processes
  ORDER BY coalesce(role = 'driver', false) DESC, process LIMIT 1)
SELECT attempt, rollout, (max(end_ns) + any_value(ahead)) / 1e9 FROM phases, reference
WHERE rollout IS NOT NULL GROUP BY ALL
"""
_SLOWEST: Final = """
WITH times AS (
  SELECT p.attempt, x.rollout, x.name, p.role, p.pp, x.total_ns
  FROM rank_phases x JOIN processes p USING (process) WHERE x.rollout IS NOT NULL
), peers AS (
  SELECT attempt, rollout, name, max(total_ns) / nullif(median(total_ns), 0) AS ratio FROM times
  GROUP BY attempt, rollout, name, role, pp HAVING count(*) > 1
)
SELECT attempt, rollout, name, max(ratio) FROM peers WHERE ratio IS NOT NULL GROUP BY ALL
"""
_Key = tuple[int, int]


class ScalarsWritten(NamedTuple):
    """The event file of a run: rollouts it has, and values that were added to it now."""

    path: Path
    rollouts: int
    added: int

    def __str__(self) -> str:
        return f"scalars: {self.added} values added, {self.rollouts} rollouts in {self.path}"


def write_scalars(run: Path, tables: RunTables, log_folder: Path) -> ScalarsWritten:
    """Bring the scalars of the run in `run` up to date, in a folder of its name below `log_folder`.

    Every rollout that driver and trainers are done with is a step, with its end as the time. Where a later
    attempt did a rollout again, it and what followed are the later attempt's. Only what is new or has changed
    is written. Raises `EventFileError`, and `TablesUnavailableError` without the package tensorboard.
    """
    path = log_folder / run.resolve().name / _FILE
    values = _values(tables)
    steps = _steps(run, tables, values)
    tags = {tag for step in steps.values() for tag in step.values}
    added = update_event_file(path, steps, {tag: _explain(tag) for tag in tags})
    return ScalarsWritten(path, len(steps), added)


def _values(tables: RunTables) -> dict[_Key, dict[str, float]]:
    """Of each attempt and rollout, the values by tag."""
    found: dict[_Key, dict[str, float]] = defaultdict(dict)
    for row in _numbered(tables, "rollout"):
        if row["role"] == "all":
            _take(found[row["key"]], "rollout", row, _ROLLOUT)
        else:
            found[row["key"]][f"idle/{row['role']}_ms"] = row["idle_ms"]
    syncs: dict[_Key, list[dict[str, Any]]] = defaultdict(list)
    for row in _numbered(tables, "sync"):
        if row["wall_ms"] is not None:
            syncs[row["key"]].append(row)
    for key, rows in syncs.items():
        longest = max(rows, key=lambda row: row["wall_ms"])
        _take(found[key], "sync", longest, _SYNC)
        size = sum(row["bytes"] or 0 for row in rows)
        found[key]["sync/bytes"] = size
        if longest["wall_ms"]:
            found[key]["sync/gb_s"] = size / longest["wall_ms"] / 1e6
    for attempt, rollout, name, ratio in tables.sql(_SLOWEST).rows:
        found[attempt, rollout][f"slowest_rank/{name}"] = ratio
    return found


def _numbered(tables: RunTables, view: str) -> list[dict[str, Any]]:
    rows = tables.view(view).records()
    return [
        row | {"key": (row["attempt"], int(row["rollout"]))} for row in rows if row["rollout"].isdecimal()
    ]


def _take(values: dict[str, float], group: str, row: dict[str, Any], names: tuple[str, ...]) -> None:
    values.update({f"{group}/{name}": row[name] for name in names if row[name] is not None})


def _steps(run: Path, tables: RunTables, values: dict[_Key, dict[str, float]]) -> dict[int, Step]:
    under_way = _first_under_way(run, tables)
    steps: dict[int, Step] = {}
    ends = {(attempt, rollout): unix_s for attempt, rollout, unix_s in tables.sql(_ENDS).rows}
    for attempt in sorted({attempt for attempt, _ in ends}):
        own = sorted(rollout for of, rollout in ends if of == attempt)
        steps = {rollout: step for rollout, step in steps.items() if rollout < own[0]}
        for rollout in own:
            if rollout < under_way.get(attempt, rollout + 1):
                steps[rollout] = Step(ends[attempt, rollout], values[attempt, rollout])
    return steps


def _first_under_way(run: Path, tables: RunTables) -> dict[int, int]:
    """Of attempts of which a process may be running still, the first rollout that one has not gone beyond."""
    seen = glance_processes(run, [], [])
    told = find_endings(seen)
    endings = {(each.process.host, each.process.incarnation): told[each.key] for each in seen}
    reached: dict[int, list[int]] = defaultdict(list)
    for attempt, host, incarnation, rollout in tables.sql(_REACHED).rows:
        if endings.get((host, incarnation), NO_END) == NO_END:
            reached[attempt].append(rollout)
    return {attempt: min(rollouts) for attempt, rollouts in reached.items()}


def _explain(tag: str) -> str:
    """What TensorBoard shows beside a chart: the unit, and how it was measured."""
    group, _, name = tag.partition("/")
    if tag in ("sync/bytes", "sync/gb_s"):
        return _BYTES_TOLD if name == "bytes" else _RATE_TOLD
    if group == "slowest_rank":
        return _SLOWEST_TOLD
    if group == "sync":
        return f"{_tell(SYNC_COLUMNS, name)}; {_OF_LONGEST}"
    return _tell(ROLLOUT_COLUMNS, "idle_ms" if group == "idle" else name)


def _tell(columns: tuple[TableColumn, ...], name: str) -> str:
    column = next(column for column in columns if column.name == name)
    return f"{column.unit}; {column.how}"
