"""How much time spans cover, as SQL: where they overlap, nothing counts twice."""

from __future__ import annotations


def covered(name: str, spans: str, keys: str) -> str:
    """The common table expression `name` (`keys`, ns): what rows of `spans` cover, by `keys`.

    Ordered by start, each span adds what lies beyond the farthest end before it::

        start_ns  end_ns  reached  adds
               0      10     NULL    10
               4       8       10     0
               6      15       10     5
    """
    return f"""{name}_ordered AS (
  SELECT {keys}, start_ns, end_ns, max(end_ns) OVER (PARTITION BY {keys} ORDER BY start_ns, end_ns
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached FROM {spans}
), {name} AS (
  SELECT {keys}, sum(greatest(0, end_ns - greatest(start_ns, coalesce(reached, start_ns)))) AS ns
  FROM {name}_ordered GROUP BY ALL
)"""
