"""The view ``rollout``: what the wall time of each rollout went to, by role."""

from __future__ import annotations

from typing import Any, Final

from ._column import Table, read_columns
from ._engine import fetch
from ._intervals import covered
from ._tables import ROLLOUT_ORDER

_UNION: Final = "host clock: time in which at least one process of the role was in"
COLUMNS: Final = read_columns(f"""
attempt | | start of the run
rollout | | id, as text
role | | `all`: any process of the run
processes | | that recorded something for this rollout
wall_ms | ms | host clock: first start to last end of any phase of the rollout, same for all roles
generate_ms | ms | {_UNION} generate, reward or convert_samples
train_ms | ms | {_UNION} a trainer phase (data, log-probs, advantages, train_step)
sync_ms | ms | {_UNION} weight_sync or an engine's part of it
eval_ms | ms | {_UNION} eval
other_ms | ms | {_UNION} other phases (memory, checkpoints, your own) and none of these
idle_ms | ms | wall less all of the above; train_wait and barrier outside a sync count here
overlap_ms | ms | by how much generate + train + sync + eval exceed the time their union covers
trend | ratio | wall over the median wall of the earlier numbered rollouts; NULL: there is none
outlier_score | | |wall - median| over 1.4826 MAD of the attempt's numbered rollouts; NULL: fewer than 4, or
  MAD 0
is_outlier | | outlier_score above 3.5; where MAD is 0, any difference
""")

_QUERY: Final = f"""
WITH spans AS (
  SELECT *, (end_ns - start_ns) / 1e6 AS wall_ms, try_cast(rollout_name AS BIGINT) AS number
  FROM rollout_spans
), middle AS (
  SELECT attempt, median(wall_ms) AS mid, count(*) AS n FROM spans WHERE number IS NOT NULL GROUP BY ALL
), spread AS (
  SELECT s.attempt, median(abs(s.wall_ms - m.mid)) AS mad FROM spans s JOIN middle m USING (attempt)
  WHERE s.number IS NOT NULL GROUP BY ALL
), told AS (
  SELECT s.*, CASE WHEN number IS NOT NULL THEN wall_ms / (SELECT median(e.wall_ms) FROM spans e
      WHERE e.attempt = s.attempt AND e.number < s.number) END AS trend,
    CASE WHEN number IS NOT NULL AND m.n >= 4 THEN
      CASE WHEN d.mad > 0 THEN abs(wall_ms - m.mid) / (1.4826 * d.mad) WHEN wall_ms = m.mid THEN 0 END
      END AS score,
    number IS NOT NULL AND m.n >= 4 AND d.mad = 0 AND wall_ms <> m.mid AS is_odd
  FROM spans s LEFT JOIN middle m USING (attempt) LEFT JOIN spread d USING (attempt)
), chosen AS (
  SELECT attempt, rollout_name, coalesce(role, 'unknown') AS role, process, activity, start_ns, end_ns
  FROM rollout_phases WHERE list_contains(?, rollout_name)
), roles AS (
  SELECT * FROM chosen UNION ALL SELECT attempt, rollout_name, 'all', process, activity, start_ns, end_ns
  FROM chosen
), sets AS (
  SELECT attempt, rollout_name, role, activity, start_ns, end_ns FROM roles
  UNION ALL SELECT attempt, rollout_name, role, 'any four', start_ns, end_ns FROM roles
    WHERE activity <> 'other'
  UNION ALL SELECT attempt, rollout_name, role, 'any', start_ns, end_ns FROM roles
), {covered("shares", "sets", "attempt, rollout_name, role, activity")}, wide AS (
  SELECT attempt, rollout_name, role,
    coalesce(max(ns) FILTER (activity = 'generate'), 0) AS generate_ns,
    coalesce(max(ns) FILTER (activity = 'train'), 0) AS train_ns,
    coalesce(max(ns) FILTER (activity = 'sync'), 0) AS sync_ns,
    coalesce(max(ns) FILTER (activity = 'eval'), 0) AS eval_ns,
    coalesce(max(ns) FILTER (activity = 'any four'), 0) AS four,
    coalesce(max(ns) FILTER (activity = 'any'), 0) AS every
  FROM shares GROUP BY ALL
), counts AS (
  SELECT attempt, rollout_name, role, count(DISTINCT process) AS processes FROM roles GROUP BY ALL
)
SELECT attempt, rollout_name, role, processes, wall_ms, generate_ns / 1e6, train_ns / 1e6, sync_ns / 1e6,
  eval_ns / 1e6, (every - four) / 1e6, (end_ns - start_ns - every) / 1e6,
  (generate_ns + train_ns + sync_ns + eval_ns - four) / 1e6,
  trend, score, coalesce(score > 3.5, is_odd, false)
FROM wide JOIN counts USING (attempt, rollout_name, role) JOIN told USING (attempt, rollout_name)
ORDER BY attempt, {ROLLOUT_ORDER}, role <> 'all', role
"""


def rollout_view(connection: Any, rollouts: list[str]) -> Table:
    """A row for each attempt, rollout and role; trend and outliers look at the whole run."""
    _, rows = fetch(connection, _QUERY, [rollouts])
    return Table("rollout", COLUMNS, rows)
