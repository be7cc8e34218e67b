"""The documented tables, derived from the lines of a run."""

from __future__ import annotations

from typing import Any, Final

from slime_profiler_plugin.clock import SAME_CLOCK, ClockMapping, ClockPair, align_domains
from slime_profiler_plugin.schema import INITIAL

from ._activities import ACTIVITIES, OTHER
from ._column import TableColumn, read_columns
from ._load import FARTHEST_NS

_REFERENCE: Final = "monotonic clock of the reference process (the driver, else the first), ns"

#: What ``slime-profiler sql`` can be asked about.
TABLES: Final[dict[str, tuple[TableColumn, ...]]] = {
    "processes": read_columns(f"""
process | | number of the process in these tables, in order of attempt and start
attempt | | as recorded
role | | last that the process said; NULL: none
rank | | last that the process said; NULL: none
world_size | | last that the process said
tp | | tensor-parallel rank
pp | | pipeline-parallel rank
dp | | data-parallel rank
cp | | context-parallel rank
ep | | expert-parallel rank
engine | | index of the engine
host | | as recorded
pid | | as recorded
incarnation | | tells apart processes that had one pid
source | | the process as the sender of a weight sync: role-rank@incarnation
start_unix_ns | ns | wall clock at the start of the process
start_ns | ns | the same moment; {_REFERENCE}
first_ns | ns | first time in its records; {_REFERENCE}
last_ns | ns | last sign of life; {_REFERENCE}
ended | | whether it closed its file cleanly
clock_domain | | processes of one domain have the same clock
clock_basis | | what its place on the reference clock rests on
clock_offset_ns | ns | added to its times, one number for the process; 0 in the same domain
"""),
    "phases": read_columns(f"""
process | | see `processes`
attempt | | of the process
role | | of the process
rank | | of the process
id | | unique in the process
parent | | id of the phase around it in the same process and thread or task
name | | as recorded
activity | | generate, train, sync, eval or other; NULL: waiting
is_outer | | whether the phase around it, if any, has no activity or the activity other
rollout | | number; NULL: initial, another name, or unknown
rollout_name | | as text; that of its sync, by source or weight version, where it says none
step | | as recorded
start_ns | ns | host clock; {_REFERENCE}
end_ns | ns | host clock; {_REFERENCE}
dur_ns | ns | host clock; of an open phase until the last sign of life of its process
is_open | | it had not ended when the process wrote last
device_ns | ns | device event bracket: what the stream did between two marks; NULL: host only
device_uncertainty_ns | ns | bound on the error of where the bracket stands on the host clock
thread | | native id
task | | number of the asyncio task; NULL: none
bytes | B | as recorded
tensors | | as recorded
bucket | | as recorded
transport | | nccl, ipc, disk or disk_delta; by weight version where it says none
engine | | index of the engine it is about
sync | | number of the weight sync; by weight version where it says none
source | | sender of the weight sync; by weight version where it says none
weight_version | | as recorded
error | | what was raised in it; NULL: nothing
attrs | | all other fields, as JSON
"""),
    "marks": read_columns(f"""
process | | see `processes`
name | | as recorded
at_ns | ns | host clock; {_REFERENCE}
rollout_name | | as recorded
attrs | | all other fields, as JSON
"""),
    "drops": read_columns("""
process | | see `processes`
what | | phase, open, mark, device, trace, attrs, or a part of the recorder that was disabled
reason | | as recorded
count | | how many
"""),
    "damage": read_columns("""
path | | file
kind | | truncated, corrupt, refused or missing
line | | number of the line; NULL: the whole file, or several
lost | | lines lost; 0: not known
reason | | what is wrong with it
"""),
    "rank_phases": read_columns("""
process | | see `processes`
rollout_name | | see `phases`
rollout | | see `phases`
name | | of the phase
count | | how often it ran
total_ns | ns | sum of host durations
longest_ns | ns | longest host duration
device_ns | ns | sum of device event brackets; NULL: none
"""),
}

_PROCESSES: Final = f"""
CREATE OR REPLACE TABLE processes AS
WITH firsts AS (
  SELECT f.folder, f.stem, arg_min(struct_pack(attempt := l.attempt, role := l.role, rank := l.rank,
    world_size := l.world_size, ranks := l.ranks, engine := l.engine, host := l.host, pid := l.pid,
    incarnation := l.incarnation, start_unix_ns := l.start_unix_ns,
    start_ns := greatest(-{FARTHEST_NS}, least(l.start_ns, {FARTHEST_NS})),
    clock_domain := coalesce(l.clock_domain, '')), f.file) AS p
  FROM loading.lines l JOIN loading.files f USING (file) WHERE l.kind = 'process' GROUP BY ALL
), said AS (
  SELECT f.folder, f.stem, arg_max(l.role, l.at_ns) AS role, arg_max(l.rank, l.at_ns) AS rank,
    arg_max(l.world_size, l.at_ns) AS world_size, arg_max(l.ranks, l.at_ns) AS ranks,
    arg_max(l.engine, l.at_ns) AS engine
  FROM loading.lines l JOIN loading.files f USING (file) WHERE l.kind = 'identity' GROUP BY ALL
), seen AS (
  SELECT f.folder, f.stem, bool_or(l.kind = 'end') AS ended,
    greatest(-{FARTHEST_NS}, least(min(l.start_ns), {FARTHEST_NS})) AS first_ns,
    least(max(greatest(coalesce(l.start_ns + coalesce(l.dur_ns, 0), 0), coalesce(l.seen_ns, 0),
      coalesce(l.at_ns, 0), coalesce(l.mono_ns, 0))), {FARTHEST_NS}) AS last_ns
  FROM loading.lines l JOIN loading.files f USING (file) GROUP BY ALL
)
SELECT CAST(row_number() OVER (ORDER BY p.attempt, p.start_unix_ns, folder, stem) AS INTEGER) AS process,
  p.attempt AS attempt, coalesce(s.role, p.role) AS role, coalesce(s.rank, p.rank) AS rank,
  coalesce(s.world_size, p.world_size) AS world_size,
  try_cast(coalesce(s.ranks, p.ranks)->>'tp' AS BIGINT) AS tp,
  try_cast(coalesce(s.ranks, p.ranks)->>'pp' AS BIGINT) AS pp,
  try_cast(coalesce(s.ranks, p.ranks)->>'dp' AS BIGINT) AS dp,
  try_cast(coalesce(s.ranks, p.ranks)->>'cp' AS BIGINT) AS cp,
  try_cast(coalesce(s.ranks, p.ranks)->>'ep' AS BIGINT) AS ep,
  try_cast(coalesce(s.engine, p.engine)->>'index' AS BIGINT) AS engine,
  p.host AS host, p.pid AS pid, p.incarnation AS incarnation,
  concat(coalesce(coalesce(s.role, p.role), 'None'), '-',
    coalesce(CAST(coalesce(s.rank, p.rank) AS VARCHAR), 'None'), '@', p.incarnation) AS source,
  p.start_unix_ns AS start_unix_ns, p.start_ns AS start_ns, v.first_ns, v.last_ns, v.ended,
  p.clock_domain AS clock_domain,
  CAST('' AS VARCHAR) AS clock_basis, CAST(0 AS BIGINT) AS clock_offset_ns, folder, stem
FROM firsts LEFT JOIN said s USING (folder, stem) JOIN seen v USING (folder, stem)
ORDER BY 1
"""

_OWNERS: Final = """
CREATE OR REPLACE TEMP TABLE owners AS
SELECT f.file, p.* FROM loading.files f JOIN processes p ON p.folder = f.folder AND p.stem = f.stem
"""

_SPANS: Final = """
CREATE OR REPLACE TEMP TABLE spans AS
SELECT o.process, o.attempt, o.role, o.rank, l.id, l.parent, l.name, l.rollout AS rollout_name, l.step,
  l.start_ns + o.clock_offset_ns AS start_ns,
  CASE WHEN l.kind = 'open' THEN greatest(l.seen_ns, o.last_ns - o.clock_offset_ns) - l.start_ns
    ELSE l.dur_ns END AS dur_ns,
  l.kind = 'open' AS is_open, l.tid AS thread, l.task, l.bytes, l.tensors, l.bucket, l.transport,
  trim(l.engine, '"') AS engine, l.sync,
  CASE WHEN l.name IN ('bucket_send', 'shard_write', 'delta_encode', 'delta_publish')
    THEN coalesce(l.source, o.source) ELSE l.source END AS source,
  l.weight_version, l.error, l.attrs
FROM loading.lines l JOIN owners o USING (file)
WHERE l.kind = 'phase' OR (l.kind = 'open' AND NOT EXISTS (
  SELECT 1 FROM loading.lines d JOIN loading.files e USING (file)
  WHERE d.kind = 'phase' AND e.folder = o.folder AND e.stem = o.stem AND d.id = l.id))
"""

_VERSIONS: Final = """
CREATE OR REPLACE TEMP TABLE versions AS
SELECT attempt, weight_version, any_value(sync) AS sync, any_value(source) AS source,
  any_value(rollout_name) AS rollout_name, any_value(transport) AS transport,
  count(DISTINCT source) AS sources
FROM spans WHERE weight_version IS NOT NULL AND sync IS NOT NULL AND source IS NOT NULL
  AND rollout_name IS NOT NULL
GROUP BY ALL HAVING count(DISTINCT sync) = 1
"""

_SYNC_ROLLOUTS: Final = """
CREATE OR REPLACE TEMP TABLE sync_rollouts AS
SELECT attempt, source, sync, any_value(rollout_name) AS rollout_name FROM spans
WHERE sync IS NOT NULL AND source IS NOT NULL AND rollout_name IS NOT NULL GROUP BY ALL
"""

_PHASES: Final = """
CREATE OR REPLACE TABLE phases AS
WITH named AS (SELECT DISTINCT name FROM spans), kinds AS (
  SELECT n.name, CASE WHEN a.name IS NULL THEN '{other}' ELSE a.activity END AS activity
  FROM named n LEFT JOIN activities a USING (name)
), brackets AS (
  SELECT o.process, l.id, any_value(l.dur_ns) AS device_ns, any_value(l.uncertainty_ns) AS uncertainty
  FROM loading.lines l JOIN owners o USING (file) WHERE l.kind = 'device' GROUP BY ALL
), resolved AS (
  SELECT s.*, k.activity, coalesce(s.rollout_name, r.rollout_name, v.rollout_name) AS shown,
    coalesce(s.sync, v.sync) AS of_sync, coalesce(s.transport, v.transport) AS way,
    coalesce(s.source, CASE WHEN v.sources = 1 AND s.sync IS NULL THEN v.source END) AS of_source
  FROM spans s JOIN kinds k USING (name)
  LEFT JOIN sync_rollouts r ON r.attempt = s.attempt AND r.source = s.source AND r.sync = s.sync
  LEFT JOIN versions v ON v.attempt = s.attempt AND v.weight_version = s.weight_version
)
SELECT s.process, s.attempt, s.role, s.rank, s.id, s.parent, s.name, s.activity,
  coalesce(k.activity, '{other}') = '{other}' AS is_outer,
  try_cast(s.shown AS BIGINT) AS rollout, s.shown AS rollout_name, s.step,
  s.start_ns, s.start_ns + s.dur_ns AS end_ns, s.dur_ns, s.is_open, b.device_ns,
  b.uncertainty AS device_uncertainty_ns, s.thread, s.task, s.bytes, s.tensors, s.bucket, s.way AS transport,
  s.engine, s.of_sync AS sync, s.of_source AS source, s.weight_version, s.error, s.attrs
FROM resolved s LEFT JOIN spans p ON p.process = s.process AND p.id = s.parent
LEFT JOIN kinds k ON k.name = p.name LEFT JOIN brackets b ON b.process = s.process AND b.id = s.id
"""

_REST: Final = (
    """CREATE OR REPLACE TABLE marks AS SELECT o.process, l.name, l.start_ns + o.clock_offset_ns AS at_ns,
    l.rollout AS rollout_name, l.attrs FROM loading.lines l JOIN owners o USING (file) WHERE kind = 'mark'""",
    """CREATE OR REPLACE TABLE drops AS SELECT o.process, l.what, l.reason, coalesce(l.count, 1) AS count
    FROM loading.lines l JOIN owners o USING (file) WHERE kind = 'drop'""",
    """CREATE OR REPLACE TABLE damage AS SELECT path, kind, line, lost, reason FROM loading.damage""",
    """CREATE OR REPLACE TABLE rank_phases AS SELECT process, rollout_name, rollout, name,
    CAST(count(*) AS BIGINT) AS count, try_cast(sum(dur_ns) AS BIGINT) AS total_ns, max(dur_ns) AS longest_ns,
    try_cast(sum(device_ns) AS BIGINT) AS device_ns FROM phases GROUP BY ALL""",
    """CREATE OR REPLACE TABLE rollout_phases AS SELECT attempt, process, role, rollout_name, activity,
    start_ns, end_ns FROM phases WHERE is_outer AND activity IS NOT NULL AND rollout_name IS NOT NULL
    ORDER BY attempt, rollout_name, role, start_ns""",
    """CREATE OR REPLACE TABLE rollout_spans AS SELECT attempt, rollout_name, min(start_ns) AS start_ns,
    max(end_ns) AS end_ns FROM phases WHERE rollout_name IS NOT NULL GROUP BY ALL""",
    # Stretches without a gap in which something other than a sync went on, for each attempt.
    """CREATE OR REPLACE TABLE busy_spans AS WITH ordered AS (
      SELECT attempt, start_ns, end_ns, max(end_ns) OVER (PARTITION BY attempt ORDER BY start_ns, end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
      FROM rollout_phases WHERE activity IN ('generate', 'eval', 'train')
    ), numbered AS (
      SELECT *, count(*) FILTER (reached IS NULL OR start_ns > reached) OVER (PARTITION BY attempt
        ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS number FROM ordered
    ) SELECT attempt, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM numbered
    GROUP BY attempt, number""",
    """CREATE OR REPLACE TABLE sync_phases AS SELECT * FROM phases
    WHERE (sync IS NOT NULL OR name IN ('tp_gather', 'ep_gather')) ORDER BY attempt, sync, start_ns""",
)


def derive_tables(connection: Any) -> None:
    """Make the tables anew from ``loading.lines``."""
    connection.execute("CREATE OR REPLACE TEMP TABLE activities (name VARCHAR, activity VARCHAR)")
    connection.executemany(
        "INSERT INTO activities VALUES (?, ?)", [list(item) for item in ACTIVITIES.items()]
    )
    connection.execute(_PROCESSES)
    _place_on_one_clock(connection)
    connection.execute(_OWNERS)
    for statement in (_SPANS, _VERSIONS, _SYNC_ROLLOUTS, _PHASES.format(other=OTHER)):
        connection.execute(statement)
    for statement in _REST:
        connection.execute(statement)
    for name in ("folder", "stem"):
        connection.execute(f"ALTER TABLE processes DROP COLUMN {name}")


def _place_on_one_clock(connection: Any) -> None:
    """Give each process the offset that brings its times onto the reference's clock, at its start."""
    rows = connection.execute(
        "SELECT process, role, clock_domain, start_ns, start_unix_ns FROM processes ORDER BY process"
    ).fetchall()
    if not rows:
        return
    reference = next((row for row in rows if row[1] == "driver"), rows[0])[2]
    pairs: dict[str, list[ClockPair]] = {}
    if any(row[2] != reference for row in rows):
        told = connection.execute(
            "SELECT p.clock_domain, l.mono_ns, l.unix_ns, l.error_ns FROM loading.lines l "
            "JOIN loading.files f USING (file) JOIN processes p ON p.folder = f.folder AND p.stem = f.stem "
            "WHERE l.kind = 'clock' ORDER BY l.mono_ns"
        )
        for domain, *pair in told.fetchall():
            pairs.setdefault(domain, []).append(ClockPair(*pair))
        for _, _, domain, start_ns, unix_ns in rows:
            pairs.setdefault(domain, [ClockPair(start_ns, unix_ns, 1_000_000)])
    domains = {row[2] for row in rows}
    mappings = {name: ClockMapping(pairs[name]) if name in pairs else None for name in domains}
    alignments = align_domains(mappings, reference)
    for process, _, domain, start_ns, _ in rows:
        alignment = alignments[domain]
        offset = 0 if alignment.basis == SAME_CLOCK else alignment.to_reference(start_ns) - start_ns
        offset = max(-FARTHEST_NS, min(offset, FARTHEST_NS - 1))
        connection.execute(
            "UPDATE processes SET clock_basis = ?, clock_offset_ns = ?, start_ns = start_ns + ?, "
            "first_ns = first_ns + ?, last_ns = last_ns + ? WHERE process = ?",
            [alignment.basis, offset, offset, offset, offset, process],
        )


#: Sorts `rollout_name`: ``initial`` first, then numbers, then other names.
ROLLOUT_ORDER: Final = (
    f"rollout_name <> '{INITIAL}', try_cast(rollout_name AS BIGINT) IS NULL, "
    "try_cast(rollout_name AS BIGINT), rollout_name"
)
