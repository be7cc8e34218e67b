"""The view ``ranks``: every phase on every rank, beside its peers and beside its own past."""

from __future__ import annotations

from typing import Any, Final

from ._column import Table, read_columns
from ._engine import fetch

COLUMNS: Final = read_columns("""
attempt | | start of the run
role | | of the process
rank | | of the process; an engine's index where it has no rank
host | | of the process
process | | number in table `processes`; a rank that came back has another
tp | | tensor-parallel rank
pp | | pipeline-parallel rank
dp | | data-parallel rank
cp | | context-parallel rank
ep | | expert-parallel rank
phase | | name
rollouts | | chosen rollouts in which it ran here
count | | how often it ran
total_ms | ms | host clock: sum of its durations
median_ms | ms | host clock: median over rollouts of its time per rollout
longest_ms | ms | host clock: the longest single one
device_ms | ms | device event brackets: their sum; NULL: none
peers | | processes of the same attempt, role and pipeline rank that ran it, this one too
peer_median_ms | ms | median over those peers of median_ms
skew | ratio | median_ms over peer_median_ms; above 1: slower; NULL: the peers took no time
peer_score | 0 to 1 | 1 / skew, at most 1: 0.5 takes twice as long as its peers; NULL: no other peer
history_score | 0 to 1 | median of its time in earlier rollouts over that in the last chosen one, at most 1:
  0.5 has become twice as slow; NULL: fewer than 3 rollouts
""")

_QUERY: Final = """
WITH own AS (
  SELECT r.*, CASE WHEN rollout_name = 'initial' THEN -1 ELSE r.rollout END AS turn
  FROM rank_phases r WHERE rollout_name IS NOT NULL
), chosen AS (
  SELECT process, name, count(*) AS rollouts, try_cast(sum(count) AS BIGINT) AS n,
    sum(total_ns) / 1e6 AS total_ms, median(total_ns) / 1e6 AS median_ms,
    max(longest_ns) / 1e6 AS longest_ms, sum(device_ns) / 1e6 AS device_ms,
    max(turn) AS last_turn, arg_max(total_ns, turn) AS last_ns
  FROM own WHERE list_contains(?, rollout_name) GROUP BY process, name
), past AS (
  SELECT c.process, c.name, median(o.total_ns) AS past_ns, count(*) AS n
  FROM chosen c JOIN own o ON o.process = c.process AND o.name = c.name AND o.turn < c.last_turn
  GROUP BY ALL
), named AS (
  SELECT c.*, p.attempt, coalesce(p.role, 'unknown') AS role, coalesce(p.rank, p.engine) AS rank, p.host,
    p.tp, p.pp, p.dp, p.cp, p.ep
  FROM chosen c JOIN processes p USING (process)
), peers AS (
  SELECT attempt, role, pp, name, count(*) AS peers, median(median_ms) AS peer_ms FROM named GROUP BY ALL
)
SELECT n.attempt, n.role, n.rank, n.host, n.process, n.tp, n.pp, n.dp, n.cp, n.ep, n.name, n.rollouts, n.n,
  n.total_ms, n.median_ms, n.longest_ms, n.device_ms, q.peers, q.peer_ms, n.median_ms / nullif(q.peer_ms, 0),
  CASE WHEN q.peers > 1 THEN CASE WHEN n.median_ms <= q.peer_ms THEN 1.0 ELSE q.peer_ms / n.median_ms END END,
  CASE WHEN h.n >= 2 THEN CASE WHEN n.last_ns <= h.past_ns THEN 1.0 ELSE h.past_ns / n.last_ns END END
FROM named n JOIN peers q ON q.attempt = n.attempt AND q.role = n.role AND q.name = n.name
  AND q.pp IS NOT DISTINCT FROM n.pp
LEFT JOIN past h ON h.process = n.process AND h.name = n.name
ORDER BY n.attempt, n.role, n.name, n.rank, n.process
"""


def ranks_view(connection: Any, rollouts: list[str]) -> Table:
    """A row for each phase and process."""
    _, rows = fetch(connection, _QUERY, [rollouts])
    return Table("ranks", COLUMNS, rows)
