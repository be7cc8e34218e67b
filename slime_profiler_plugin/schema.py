"""The lines of a record file, version 1: one JSON object per line, told apart by ``kind``.

Each process appends to one file of its own. The first line of every segment is a
`Process`; every later line is one of the other kinds. All times are integer
nanoseconds of the writing process's ``CLOCK_MONOTONIC``, unless a field's name says
``unix``: then they are nanoseconds since the epoch (``CLOCK_REALTIME``).

Readers keep what they do not know: an unknown kind comes back as `Unknown`, unknown
fields come back beside the line. A file whose major version is newer is refused by name.
Absent optional fields are left out of the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

#: (major, minor). Minor: fields or kinds were added. Major: old readers would be wrong.
VERSION: Final = (1, 0)
VERSION_TEXT: Final = f"{VERSION[0]}.{VERSION[1]}"

INITIAL: Final = "initial"
#: A rollout id, or ``"initial"`` before the first, or ``None`` where the process does not
#: know (an engine, whose records take the rollout of the sync they belong to).
Rollout: TypeAlias = "int | Literal['initial'] | None"

HOST_TIMING: Final = "host"
DEVICE_TIMING: Final = "device_event_bracket"


class SchemaError(ValueError):
    """A line is not what its kind promises, or its file has a newer major version."""


class NewerVersionError(SchemaError):
    """The file has a newer major version: whoever reads it with this one would be wrong."""


class _Line(msgspec.Struct, tag_field="kind", omit_defaults=True):
    """Common settings: `kind` tells lines apart, defaults are not written."""


class Process(_Line, tag="process", kw_only=True):
    """Who wrote this file. First line of each segment.

    `start_ns`/`start_unix_ns` are one clock pair read at start. `clock_domain` is equal for
    two processes exactly when their monotonic clocks are the same clock.
    """

    #: A plain default would be left out of the line, which must say its version.
    version: str = msgspec.field(default_factory=lambda: VERSION_TEXT)
    run_id: str
    attempt: int
    host: str
    pid: int
    incarnation: str
    start_ns: int
    start_unix_ns: int
    clock_domain: str
    segment: int = 0
    role: str | None = None
    rank: int | None = None
    ranks: dict[str, int] = {}
    world_size: int | None = None
    #: Engines only: index, group, node_rank.
    engine: dict[str, int] = {}
    versions: dict[str, str] = {}
    #: The settings this process runs with (an allow-list, never the environment).
    config: dict[str, Any] = {}
    #: Seconds between two writes: what a SIGKILL may cost.
    period_s: float = 1.0


class PhaseDef(_Line, tag="phase_def", kw_only=True):
    """Definition of a phase name, written before its first use in the file."""

    name: str
    parents: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    doc: str = ""


class Identity(_Line, tag="identity", kw_only=True):
    """Role, ranks or world size became known or changed; later lines have this identity."""

    at_ns: int
    role: str | None = None
    rank: int | None = None
    ranks: dict[str, int] = {}
    world_size: int | None = None
    engine: dict[str, int] = {}


class Thread(_Line, tag="thread", kw_only=True):
    """Name of a thread that phases refer to by its native id."""

    tid: int
    name: str


class _Span(_Line, kw_only=True):
    """What `Phase`, `Open` and `Mark` share."""

    name: str
    start_ns: int
    tid: int
    #: Number of the asyncio task, unique in the process; absent outside tasks.
    task: int | None = None
    parent: int | None = None
    rollout: Annotated[int, msgspec.Meta(ge=0)] | str | None = None
    step: int | None = None
    bytes: int | None = None
    tensors: int | None = None
    bucket: int | None = None
    transport: str | None = None
    engine: int | str | None = None
    sync: int | None = None
    source: str | None = None
    weight_version: str | None = None
    error: str | None = None
    attrs: dict[str, Any] = {}


class Phase(_Span, tag="phase", kw_only=True):
    """A phase that has ended. `id` is unique in its process."""

    id: int
    dur_ns: int


class Open(_Span, tag="open", kw_only=True):
    """A phase still running at a flush, at least 1 s after its start, or at the last flush.

    Written once per phase; the later `Phase` with the same `id` supersedes it.
    """

    id: int
    seen_ns: int


class Mark(_Span, tag="mark", kw_only=True):
    """A point in time."""


class Device(_Line, tag="device", kw_only=True):
    """The device-event bracket of phase `id`, resolved after the phase was written.

    What the stream did between two marks, not what a kernel did. Times are already in the
    process's clock domain, from an anchor known to within `uncertainty_ns`.
    """

    id: int
    device_type: str
    device_index: int
    stream: int
    start_ns: int
    dur_ns: int
    uncertainty_ns: int
    timing: str = DEVICE_TIMING


class Clock(_Line, tag="clock", kw_only=True):
    """A (monotonic, realtime) pair, written with each flush: also a sign of life.

    The realtime read lies within `error_ns` of the monotonic one.
    """

    mono_ns: int
    unix_ns: int
    error_ns: int


class Drop(_Line, tag="drop", kw_only=True):
    """What was lost or given up since the last `Drop` of the same `what` and `reason`.

    `what`: ``phase``, ``open``, ``mark``, ``device``, ``trace``, ``attrs`` (of a line that is there),
    or the name of a part of the recorder that failed and was disabled. `names` counts phases by name
    where known.
    """

    at_ns: int
    what: str
    reason: str
    count: int = 1
    names: dict[str, int] = {}


class End(_Line, tag="end", kw_only=True):
    """Clean close. `counts` are the lines written per kind and the total dropped."""

    at_ns: int
    reason: str
    counts: dict[str, int] = {}


class Unknown(msgspec.Struct, kw_only=True):
    """A line of a kind this version does not know, kept whole."""

    kind: str
    fields: dict[str, Any]


#: Our top-level keys in the file of a torch.profiler window: who wrote it, the list of the rollouts
#: it covers, and how it was recorded.
WINDOW_IDENTITY_KEY: Final = "slime_profiler"
WINDOW_ROLLOUTS_KEY: Final = "slime_profiler_rollouts"
WINDOW_KEY: Final = "slime_profiler_window"
_WINDOW_IDENTITY: Final = (
    "run_id",
    "attempt",
    "host",
    "pid",
    "incarnation",
    "role",
    "rank",
    "ranks",
    "world_size",
    "clock_domain",
)


def window_identity(process: Process, clock_pairs: Sequence[Sequence[int]]) -> dict[str, Any]:
    """What stands under `WINDOW_IDENTITY_KEY`; a pair is (monotonic ns, Unix ns, error ns)."""
    told = {name: getattr(process, name) for name in _WINDOW_IDENTITY}
    return {**told, "clock_pairs": clock_pairs}


Line: TypeAlias = Process | PhaseDef | Identity | Thread | Phase | Open | Mark | Device | Clock | Drop | End

_TYPES: Final[tuple[type[_Line], ...]] = (
    Process,
    PhaseDef,
    Identity,
    Thread,
    Phase,
    Open,
    Mark,
    Device,
    Clock,
    Drop,
    End,
)
_BY_KIND: Final = {str(t.__struct_config__.tag): t for t in _TYPES}
_FIELDS: Final = {k: frozenset(t.__struct_encode_fields__) for k, t in _BY_KIND.items()}
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(dict[str, Any])


def encode_lines(lines: list[Line]) -> bytes:
    """Whole lines, each with its newline, ready for one write."""
    return _encoder.encode_lines(lines)


def decode_line(raw: bytes) -> tuple[Line | Unknown, dict[str, Any]]:
    """One line and its unknown fields.

    Raises `SchemaError` when the line is not JSON or lacks a field of its kind, and
    `NewerVersionError` when it is a `Process` of a newer major version.

    >>> line, extra = decode_line(b'{"kind":"thread","tid":7,"name":"main","colour":"red"}')
    >>> line.name, extra
    ('main', {'colour': 'red'})
    """
    try:
        fields = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SchemaError(f"not a JSON object: {error}") from error
    kind = fields.get("kind")
    if not isinstance(kind, str):
        raise SchemaError("the line has no kind")
    line_type = _BY_KIND.get(kind)
    if kind == "process":
        _refuse_newer_major(fields.get("version"))
    if line_type is None:
        return Unknown(kind=kind, fields=fields), {}
    try:
        line = msgspec.convert(fields, line_type)
    except msgspec.ValidationError as error:
        raise SchemaError(f"bad {kind} line: {error}") from error
    known = _FIELDS[kind]
    return line, {k: v for k, v in fields.items() if k not in known and k != "kind"}  # type: ignore[return-value]


def _refuse_newer_major(version: object) -> None:
    major = str(version).split(".", 1)[0]
    if not major.isdigit():
        raise SchemaError(f"record version {version!r} is not of the form major.minor")
    if int(major) > VERSION[0]:
        raise NewerVersionError(
            f"record version {version} is newer than {VERSION_TEXT}, the newest this reader knows"
        )
