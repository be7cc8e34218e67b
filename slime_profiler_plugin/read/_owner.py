"""Who recorded a trace: from its metadata, from ``distributedInfo``, from its name."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from slime_profiler_plugin.layout import TRACE_FILE
from slime_profiler_plugin.phases import ROLES

from ._header import DISTRIBUTED_KEY, TraceHeader

_SUFFIX: Final = re.compile(r"(?:\.pt)?(?:\.trace)?(?:\.(?:json|raw|zip|gz|sqlite|nsys-rep))*$")
#: What SGLang's schedulers call their files, without the suffix.
_SGLANG: Final = re.compile(
    r"(?P<id>.+?)-TP-(?P<tp>\d+)(?:-DP-(?P<dp>\d+))?(?:-PP-(?P<pp>\d+))?(?:-EP-(?P<ep>\d+))?"
    r"(?:-(?P<stage>EXTEND|DECODE|PREFILL))?",
    re.IGNORECASE,
)
_STAGES: Final = frozenset({"EXTEND", "DECODE", "PREFILL"})
_RANK: Final = re.compile(r"(?<![A-Za-z])rank[-_]?(\d+)(?![0-9A-Za-z])", re.IGNORECASE)
#: A rank within something smaller than the world is none.
_INNER: Final = re.compile(r"(?:local|node|host|group|tp|dp|pp|cp|ep)[-_]?$", re.IGNORECASE)
_WORKER: Final = re.compile(r"(?<![A-Za-z])worker[-_]?(\d+)(?![0-9A-Za-z])", re.IGNORECASE)
#: torch names a file after host and process: a host called worker3 is no rank 3. No host has an underscore.
_HOST_AND_PID: Final = re.compile(r"[A-Za-z0-9.-]+_\d+\.\d{13,}")
_PARALLEL: Final = re.compile(
    r"(?<![A-Za-z0-9])(tp|dp|pp|cp|ep)(?:[-_]?rank)?[-_]?(\d+)(?![0-9A-Za-z])", re.IGNORECASE
)


class Owner(NamedTuple):
    """Who recorded a trace, as far as can be known: from its metadata, ``distributedInfo``, its name.

    `role` is ``None`` where nothing tells it. `detail` is what tells the file apart from others of the same
    rank: the stage and the profile id of an SGLang engine (which also stand in `stage` and `profile_id`), or
    what its name says besides the rank.
    """

    role: str | None = None
    rank: int | None = None
    ranks: dict[str, int] = {}  # noqa: RUF012 - a tuple's default, which nobody changes
    world_size: int | None = None
    detail: str = ""
    profile_id: str = ""
    stage: str = ""


class EngineName(NamedTuple):
    """What the name of an SGLang engine's file says."""

    profile_id: str
    stage: str
    ranks: dict[str, int]


def parse_engine_name(name: str) -> EngineName | None:
    """The parts of ``[{prefix}-]{id}-TP-{tp}[-DP-{dp}][-PP-{pp}][-EP-{ep}][-{stage}].trace.json[.gz]``.

    A prefix that names a stage is one; any other cannot be told from the id.

    >>> parse_engine_name("DECODE-run1-TP-0-PP-1.trace.json.gz")
    EngineName(profile_id='run1', stage='DECODE', ranks={'tp': 0, 'pp': 1})
    """
    match = _SGLANG.fullmatch(stem_of(name))
    if match is None:
        return None
    profile_id, stage = match["id"], (match["stage"] or "").upper()
    prefix, _, rest = profile_id.partition("-")
    if rest and not stage and prefix.upper() in _STAGES:
        profile_id, stage = rest, prefix.upper()
    ranks = {kind: int(match[kind]) for kind in ("tp", "dp", "pp", "ep") if match[kind] is not None}
    return EngineName(profile_id, stage, ranks)


def stem_of(name: str) -> str:
    """A file's name without the suffixes that traces have; the whole of one that is nothing else.

    >>> stem_of("rank0.pt.trace.json.gz"), stem_of("report.nsys-rep"), stem_of(".json")
    ('rank0', 'report', '.json')
    """
    return _SUFFIX.sub("", name) or name


def find_owner(name: str, header: TraceHeader, *, is_engine: bool) -> Owner:
    """Who recorded the trace with this file name and header."""
    identity = header.identity
    told = header.metadata.get(DISTRIBUTED_KEY)
    told = told if isinstance(told, dict) else {}
    world_size = _number(identity.get("world_size"), told.get("world_size"))
    rank = _number(identity.get("rank"), told.get("rank"))
    if is_engine:
        engine = parse_engine_name(name) or EngineName("", "", {})
        if rank is None and set(engine.ranks) == {"tp"}:
            rank = engine.ranks["tp"]
        detail = " ".join(filter(None, (engine.stage, engine.profile_id))) or stem_of(name)
        return Owner("engine", rank, engine.ranks, world_size, detail, engine.profile_id, engine.stage)
    if identity:
        role, ranks = identity.get("role"), identity.get("ranks", {})
        return Owner(role, rank, {k: v for k, v in ranks.items() if isinstance(v, int)}, world_size)
    role, named, detail = _parse_name(name)
    ranks = {kind.lower(): int(number) for kind, number in _PARALLEL.findall(stem_of(name))}
    return Owner(role, named if rank is None else rank, ranks, world_size, detail)


def _parse_name(name: str) -> tuple[str | None, int | None, str]:
    """Role, rank, and what else a file's name says."""
    ours = TRACE_FILE.fullmatch(name)
    if ours and ours["role"] in ROLES:
        return ours["role"], None if ours["rank"] == "x" else int(ours["rank"]), ""
    stem = stem_of(name)
    for match in _RANK.finditer(stem):
        if not _INNER.search(stem[: match.start()]):
            return None, int(match[1]), _without(stem, match)
    worker = _WORKER.search(stem)
    if worker and not _HOST_AND_PID.fullmatch(stem):
        return None, int(worker[1]), _without(stem, worker)
    return None, None, stem


def _without(stem: str, match: re.Match[str]) -> str:
    return " ".join(filter(None, (stem[: match.start()].strip("-_. "), stem[match.end() :].strip("-_. "))))


def _number(*values: Any) -> int | None:
    """The first of `values` that is a number of something."""
    whole = (value for value in values if isinstance(value, int) and not isinstance(value, bool))
    return next((value for value in whole if value >= 0), None)
