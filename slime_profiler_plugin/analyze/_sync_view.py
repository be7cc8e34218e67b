"""The views ``sync`` and ``bucket``: the ledger of weight syncs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ._column import Table, read_columns
from ._engine import fetch
from ._intervals import covered
from ._tables import ROLLOUT_ORDER

#: What the source does, as columns: name of the column without its unit, and the phases it adds up.
_PIECES: Final = (
    ("connect", ("connect_engines",)),
    ("pause", ("pause_generation",)),
    ("flush", ("flush_cache",)),
    ("gather", ("tp_gather", "ep_gather")),
    ("convert", ("weight_convert",)),
    ("ready", ("bucket_ready",)),
    ("lock_wait", ("bucket_lock_wait", "bucket_lock_release")),
    ("send", ("bucket_send",)),
    ("ack", ("bucket_ack",)),
    ("shard_write", ("shard_write",)),
    ("delta_encode", ("delta_encode",)),
    ("delta_publish", ("delta_publish",)),
    ("engine_wait", ("engine_wait",)),
    ("barrier", ("barrier",)),
    ("continue", ("continue_generation",)),
    ("complete", ("sync_complete",)),
)
_LISTED: Final = ", ".join(f"'{phase}'" for _, phases in _PIECES for phase in phases)
_ENGINE: Final = (("receive", "engine_receive"), ("pull", "engine_pull"), ("load", "engine_load"))
_WHOLE: Final = ("connect", "pause", "flush", "engine_wait", "barrier", "continue", "complete")
_BUCKET_PIECES: Final = tuple(piece for piece in _PIECES if piece[0] not in _WHOLE)
_HOPS: Final = (
    ("send", "bucket_send", "its source"),
    ("write", "shard_write", "its source"),
    ("publish", "delta_publish", "its source"),
    ("receive", "engine_receive", "the slowest engine"),
    ("pull", "engine_pull", "the slowest engine"),
    ("load", "engine_load", "the slowest engine"),
)


def _pieces_told(pieces: Sequence[tuple[str, tuple[str, ...]]], whose: str) -> str:
    return "\n".join(f"{name}_ms | ms | host clock, {whose}: sum of {' + '.join(p)}" for name, p in pieces)


def _engine_told(how: str) -> str:
    return "\n".join(f"{name}_ms | ms | host clock: {how.format(phase)}" for name, phase in _ENGINE)


_KEY: Final = """
attempt | | start of the run
rollout | | id, as text, of the rollout that the sync follows
sync | | number of the sync
source | | sending rank: role-rank@incarnation
transport | | nccl, ipc, disk or disk_delta
"""
_RATES: Final = "\n".join(
    f"{hop}_gb_s | GB/s | bytes over host time of {phase}, of {whose}; 1 GB = 10^9 B; NULL: none"
    for hop, phase, whose in _HOPS
)
SYNC_COLUMNS: Final = read_columns(f"""{_KEY.strip()}
weight_version | | as recorded
wall_ms | ms | host clock: first start to last end of its weight_sync phases, on all processes
source_ms | ms | host clock: duration of weight_sync on the source
buckets | | distinct bucket numbers
bytes | B | sum over buckets of the weights' bytes; over disk, of the files written
tensors | | sum over buckets
engines | | processes that received or loaded something of it
{_pieces_told(_PIECES, "on the source and in a weight_sync of the driver")}
other_ms | ms | host clock, on the source: time in phases of the sync and in none of those above
{_engine_told("sum of {} on the engine where it is largest")}
named_ms | ms | part of source_ms covered by at least one phase of the source inside it
remainder_ms | ms | source_ms less named_ms
named_part | 0 to 1 | named_ms over source_ms
exposed_ms | ms | wall_ms less hidden_ms: nothing else went on
hidden_ms | ms | reference clock: part of wall_ms under a generate, eval or trainer phase of the attempt
{_RATES}
bound_ms | ms | stated lower bound: bytes over the slowest link
bound_link_gb_s | GB/s | that link: configured, else the best any bucket of the transport reached on its
  slowest hop
bound_basis | | where that number is from
bound_ratio | ratio | wall_ms over bound_ms; 1 is ideal
longest_pole | | the largest of the pieces of source and driver
longest_pole_ms | ms | its time
""")
BUCKET_COLUMNS: Final = read_columns(f"""{_KEY.strip()}
bucket | | its number
bytes | B | of the weights; over disk, of the file written
tensors | | as recorded
engines | | processes that received or loaded it
start_ms | ms | host clock: its first phase on a sender, since weight_sync began
wall_ms | ms | reference clock: start to last end of any of its phases, engines' too
{_pieces_told(_BUCKET_PIECES, "on the sender")}
{_engine_told("{} on the engine where it is longest")}
{_RATES}
longest_pole | | the largest of its pieces, engines' too
longest_pole_ms | ms | its time
""")

_KEYS: Final = """
keys AS (
  SELECT attempt, sync, source, any_value(rollout_name) AS rollout_name, any_value(transport) AS transport,
    any_value(weight_version) AS weight_version
  FROM sync_phases WHERE sync IS NOT NULL AND source IS NOT NULL
  GROUP BY ALL HAVING list_contains($rollouts, any_value(rollout_name))
), wholes AS (
  SELECT k.attempt, k.sync, k.source, s.process, s.id, s.start_ns, s.end_ns,
    p.source = k.source AS is_source, p.role = 'driver' AS is_driver
  FROM keys k JOIN sync_phases s ON s.attempt = k.attempt AND s.sync = k.sync AND s.name = 'weight_sync'
    AND coalesce(s.source, k.source) = k.source
  JOIN processes p ON p.process = s.process
  WHERE s.source IS NOT NULL OR p.source = k.source
), extents AS (
  SELECT attempt, sync, source, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM wholes GROUP BY ALL
), own AS (
  SELECT attempt, sync, source, process, arg_max(id, end_ns - start_ns) AS id,
    arg_max(start_ns, end_ns - start_ns) AS start_ns, arg_max(end_ns, end_ns - start_ns) AS end_ns
  FROM wholes WHERE is_source GROUP BY ALL
), heads AS (
  SELECT attempt, sync, source, process, start_ns, end_ns, true AS is_source FROM own
  UNION ALL SELECT attempt, sync, source, process, start_ns, end_ns, false FROM wholes
  WHERE is_driver AND NOT is_source
), parts AS (
  SELECT o.attempt, o.sync, o.source, o.is_source, s.name, greatest(s.start_ns, o.start_ns) AS start_ns,
    least(s.end_ns, o.end_ns) AS end_ns
  FROM heads o JOIN sync_phases s ON s.process = o.process AND s.name <> 'weight_sync'
    AND (s.sync = o.sync OR (s.sync IS NULL AND s.start_ns >= o.start_ns AND s.end_ns <= o.end_ns))
  WHERE s.start_ns < o.end_ns AND s.end_ns > o.start_ns
), moves AS (
  SELECT k.attempt, k.sync, k.source, k.transport AS way, s.name, s.process, s.bucket, s.bytes, s.tensors,
    s.start_ns, s.end_ns, s.dur_ns, s.name IN ('engine_receive', 'engine_pull', 'engine_load') AS on_engine
  FROM keys k JOIN sync_phases s ON s.attempt = k.attempt AND s.sync = k.sync AND s.source = k.source
), sizes AS (
  SELECT attempt, sync, source, bucket,
    coalesce(max(bytes) FILTER (name IN ('bucket_send', 'bucket_ready')),
      max(bytes) FILTER (name = 'delta_encode'), max(bytes) FILTER (NOT on_engine)) AS bytes,
    max(tensors) FILTER (NOT on_engine) AS tensors
  FROM moves WHERE bucket IS NOT NULL GROUP BY ALL
)"""


def _sum_ms(phases: tuple[str, ...], time: str = "end_ns - start_ns") -> str:
    names = ", ".join(f"'{phase}'" for phase in phases)
    return f"coalesce(sum({time}) FILTER (name IN ({names})), 0) / 1e6"


def _pole(names: list[str]) -> str:
    """The largest of some columns in ms, with its name: structs compare by their first field."""
    made = ", ".join(f"struct_pack(ms := {name}_ms, name := '{name}')" for name in names)
    return f"list_aggregate([{made}], 'max')"


_SOURCE_RATES: Final = ", ".join(
    f"sum(bytes) FILTER (name = '{p}') / nullif(sum(dur_ns) FILTER (name = '{p}'), 0) AS {h}_gb_s"
    for h, p, _ in _HOPS
    if not p.startswith("engine")
)
_ENGINE_RATES: Final = ", ".join(
    f"min(gb_s) FILTER (name = '{p}') AS {h}_gb_s" for h, p, _ in _HOPS if p.startswith("engine")
)
_ENGINE_TIMES: Final = ", ".join(f"max(ms) FILTER (name = '{p}') AS {n}_ms" for n, p in _ENGINE)

_TIMES: Final = (*(n for n, _ in _PIECES), "other", *(n for n, _ in _ENGINE))
#: The columns of the ledger that say where the time of a sync went.
PIECE_COLUMNS: Final = tuple(f"{name}_ms" for name in _TIMES)

_SYNC_QUERY: Final = f"""
WITH {_KEYS}, pieces AS (
  SELECT attempt, sync, source, {", ".join(f"{_sum_ms(p)} AS {n}_ms" for n, p in _PIECES)}
  FROM parts GROUP BY ALL
), sets AS (
  SELECT attempt, sync, source, 'named' AS kind, start_ns, end_ns FROM parts WHERE is_source
  UNION ALL SELECT attempt, sync, source, 'listed', start_ns, end_ns FROM parts
  WHERE is_source AND name IN ({_LISTED})
), {covered("shares", "sets", "attempt, sync, source, kind")}, named AS (
  SELECT attempt, sync, source, sum(ns) FILTER (kind = 'named') AS named_ns,
    (sum(ns) FILTER (kind = 'named') - coalesce(sum(ns) FILTER (kind = 'listed'), 0)) / 1e6 AS other_ms
  FROM shares GROUP BY ALL
), engines AS (
  SELECT attempt, sync, source, process, name, sum(dur_ns) / 1e6 AS ms,
    sum(bytes) / nullif(sum(dur_ns) FILTER (bytes IS NOT NULL), 0) AS gb_s
  FROM moves WHERE on_engine GROUP BY ALL
), engine_times AS (
  SELECT attempt, sync, source, count(DISTINCT process) AS engines,
    {_ENGINE_TIMES},
    {_ENGINE_RATES}
  FROM engines GROUP BY ALL
), source_rates AS (
  SELECT attempt, sync, source,
    {_SOURCE_RATES}
  FROM moves GROUP BY ALL
), totals AS (
  SELECT attempt, sync, source, count(*) AS buckets, try_cast(sum(bytes) AS BIGINT) AS bytes,
    try_cast(sum(tensors) AS BIGINT) AS tensors FROM sizes GROUP BY ALL
), best AS (
  SELECT transport, name, max(bytes / dur_ns) AS gb_s FROM sync_phases
  WHERE bytes > 0 AND dur_ns > 0
    AND name IN ({", ".join(f"'{p}'" for _, p, _ in _HOPS)}) GROUP BY ALL
), slowest AS (
  SELECT transport, min(gb_s) AS gb_s, arg_min(name, struct_pack(rate := gb_s, name := name)) AS name
  FROM best GROUP BY ALL
), hidden AS (
  SELECT e.attempt, e.sync, e.source,
    sum(least(b.end_ns, e.end_ns) - greatest(b.start_ns, e.start_ns)) AS hidden_ns
  FROM extents e JOIN busy_spans b ON b.attempt = e.attempt AND b.start_ns < e.end_ns
    AND b.end_ns > e.start_ns GROUP BY ALL
), joined AS (
  SELECT k.*, x.end_ns - x.start_ns AS wall_ns, wall_ns / 1e6 AS wall_ms, o.end_ns - o.start_ns AS source_ns,
    source_ns / 1e6 AS source_ms,
    t.buckets, t.bytes, t.tensors, coalesce(g.engines, 0) AS engines,
    {", ".join(f"coalesce(p.{n}_ms, 0) AS {n}_ms" for n, _ in _PIECES)},
    {", ".join(f"coalesce(g.{n}_ms, 0) AS {n}_ms" for n, _ in _ENGINE)},
    coalesce(n.other_ms, 0) AS other_ms,
    CASE WHEN o.process IS NOT NULL THEN coalesce(n.named_ns, 0) END AS named_ns,
    coalesce(h.hidden_ns, 0) AS hidden_ns,
    {", ".join(f"{'g' if p.startswith('engine') else 'r'}.{h}_gb_s" for h, p, _ in _HOPS)},
    coalesce($link, s.gb_s) AS link,
    CASE WHEN $link IS NOT NULL THEN 'configured' WHEN s.gb_s IS NOT NULL
      THEN concat('measured: best ', s.name) END AS basis
  FROM keys k LEFT JOIN extents x USING (attempt, sync, source) LEFT JOIN own o USING (attempt, sync, source)
  LEFT JOIN totals t USING (attempt, sync, source) LEFT JOIN engine_times g USING (attempt, sync, source)
  LEFT JOIN pieces p USING (attempt, sync, source) LEFT JOIN named n USING (attempt, sync, source)
  LEFT JOIN hidden h USING (attempt, sync, source) LEFT JOIN source_rates r USING (attempt, sync, source)
  LEFT JOIN slowest s ON s.transport = k.transport
), poled AS (
  SELECT *, bytes / link / 1e6 AS bound_ms, {_pole([*(n for n, _ in _PIECES), "other"])} AS pole FROM joined
)
SELECT attempt, rollout_name, sync, source, transport, weight_version, wall_ms, source_ms, buckets, bytes,
  tensors, engines, {", ".join(f"{n}_ms" for n in _TIMES)}, named_ns / 1e6, (source_ns - named_ns) / 1e6,
  named_ns / nullif(source_ns, 0), (wall_ns - hidden_ns) / 1e6,
  CASE WHEN wall_ns IS NOT NULL THEN hidden_ns / 1e6 END,
  {", ".join(f"{h}_gb_s" for h, _, _ in _HOPS)}, bound_ms, link, basis, wall_ms / nullif(bound_ms, 0),
  CASE WHEN pole.ms > 0 THEN pole.name END, CASE WHEN pole.ms > 0 THEN pole.ms END
FROM poled ORDER BY attempt, sync, source
"""

_BUCKET_QUERY: Final = f"""
WITH {_KEYS}, per_engine AS (
  SELECT attempt, sync, source, bucket, process, name, sum(dur_ns) / 1e6 AS ms,
    sum(bytes) / nullif(sum(dur_ns), 0) AS gb_s
  FROM moves WHERE on_engine AND bucket IS NOT NULL GROUP BY ALL
), engine_times AS (
  SELECT attempt, sync, source, bucket, count(DISTINCT process) AS engines,
    {_ENGINE_TIMES},
    {_ENGINE_RATES}
  FROM per_engine GROUP BY ALL
), pieces AS (
  SELECT attempt, sync, source, bucket, min(start_ns) FILTER (NOT on_engine) AS start_ns,
    max(end_ns) AS end_ns,
    {", ".join(f"{_sum_ms(p, 'dur_ns')} AS {n}_ms" for n, p in _BUCKET_PIECES)},
    {_SOURCE_RATES}
  FROM moves WHERE bucket IS NOT NULL GROUP BY ALL
), joined AS (
  SELECT k.*, p.bucket, z.bytes, z.tensors, coalesce(g.engines, 0) AS engines,
    (p.start_ns - x.start_ns) / 1e6 AS start_ms, (p.end_ns - p.start_ns) / 1e6 AS wall_ms,
    {", ".join(f"p.{n}_ms" for n, _ in _BUCKET_PIECES)},
    {", ".join(f"coalesce(g.{n}_ms, 0) AS {n}_ms" for n, _ in _ENGINE)},
    {", ".join(f"{'g' if p.startswith('engine') else 'p'}.{h}_gb_s" for h, p, _ in _HOPS)}
  FROM keys k JOIN pieces p USING (attempt, sync, source) LEFT JOIN extents x USING (attempt, sync, source)
  LEFT JOIN sizes z USING (attempt, sync, source, bucket)
  LEFT JOIN engine_times g USING (attempt, sync, source, bucket)
), poled AS (
  SELECT *, {_pole([n for n, _ in (*_BUCKET_PIECES, *_ENGINE)])} AS pole FROM joined
)
SELECT attempt, rollout_name, sync, source, transport, bucket, bytes, tensors, engines, start_ms, wall_ms,
  {", ".join(f"{n}_ms" for n, _ in (*_BUCKET_PIECES, *_ENGINE))},
  {", ".join(f"{h}_gb_s" for h, _, _ in _HOPS)},
  CASE WHEN pole.ms > 0 THEN pole.name END, CASE WHEN pole.ms > 0 THEN pole.ms END
FROM poled ORDER BY attempt, {ROLLOUT_ORDER}, sync, source, bucket
"""


def sync_view(connection: Any, rollouts: list[str], link_gb_s: float | None = None) -> Table:
    """A row for each sync and source. `link_gb_s`: the slowest link, for the lower bound."""
    _, rows = fetch(connection, _SYNC_QUERY, {"rollouts": rollouts, "link": link_gb_s})
    return Table("sync", SYNC_COLUMNS, rows)


def bucket_view(connection: Any, rollouts: list[str]) -> Table:
    """A row for each bucket of each sync and source."""
    _, rows = fetch(connection, _BUCKET_QUERY, {"rollouts": rollouts})
    return Table("bucket", BUCKET_COLUMNS, rows)
