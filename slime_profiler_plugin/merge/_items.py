"""From lines of a record file to things that can be drawn."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from slime_profiler_plugin import schema
from slime_profiler_plugin.read import RecordLine
from slime_profiler_plugin.schema import HOST_TIMING, Rollout

from ._source import Context

#: What a row is for: the thread it belongs to, or what sets it apart.
RowKey = tuple[str, str, int, int]

_INT64: Final = 2**63
_FIELDS: Final = (
    "step",
    "sync",
    "bucket",
    "bytes",
    "tensors",
    "transport",
    "engine",
    "source",
    "weight_version",
    "error",
    "task",
    "parent",
)


class Item(NamedTuple):
    """A slice or a mark; `start_ns` and `end_ns` are reference ns."""

    start_ns: int
    end_ns: int
    name: str
    category: str
    row: RowKey
    args: dict[str, Any]
    is_mark: bool = False
    phase_id: int | None = None
    parent: int | None = None
    task: int | None = None


def when(line: schema.Phase | schema.Open | schema.Mark | schema.Device | schema.Drop) -> tuple[int, int]:
    """Start and end of a line, in ns of its process's clock domain."""
    if isinstance(line, schema.Drop):
        return line.at_ns, line.at_ns
    if isinstance(line, schema.Open):
        return line.start_ns, line.seen_ns
    length = 0 if isinstance(line, schema.Mark) else line.dur_ns
    return line.start_ns, line.start_ns + length


def thread_row(tid: int) -> RowKey:
    """The row of a thread's own phases."""
    return ("thread", "", tid, 0)


def row_of(line: schema.Phase | schema.Open | schema.Mark) -> RowKey:
    """Where a line is drawn: buckets have a row of their own, tasks lanes under their thread."""
    if line.bucket is not None and not isinstance(line, schema.Mark):
        return ("buckets", "", 0, 0)
    return thread_row(line.tid) if line.task is None else ("tasks", "", line.tid, 0)


def bracket_row(line: schema.Device) -> RowKey:
    """Brackets of one stream share a row."""
    return ("brackets", line.device_type, line.device_index, line.stream)


def name_row(row: RowKey, threads: dict[int, str]) -> str:
    """The name shown for a row and all its lanes."""
    kind, device, number, stream = row
    if kind == "buckets":
        return "buckets"
    if kind == "drops":
        return "dropped by the recorder"
    if kind == "brackets":
        return f"brackets · {device} {number} stream {stream}"
    thread = threads.get(number, "thread")
    return f"{thread} {number}" if kind == "thread" else f"{thread} {number} · tasks"


def row_order(row: RowKey, main_tid: int) -> tuple[Any, ...]:
    """Threads first, the main thread before all, each with its tasks below; then the special rows."""
    kind, device, number, stream = row
    if kind in ("thread", "tasks"):
        return (0, number != main_tid, number, kind == "tasks")
    return (1, ("buckets", "brackets", "drops").index(kind), device, number, stream)


def span_args(
    item: RecordLine, line: schema.Phase | schema.Open | schema.Mark, rollout: Rollout, ids: Context
) -> dict[str, Any]:
    """Args of a phase, an open phase or a mark."""
    args: dict[str, Any] = {"run_id": ids.run_id, "attempt": ids.attempt}
    if rollout is not None:
        args["rollout"] = rollout
    if not isinstance(line, schema.Mark):
        args["phase_id"] = line.id
        args["timing"] = HOST_TIMING
    for name in _FIELDS:
        value = getattr(line, name)
        if value is not None:
            args[name] = value
    if line.attrs:
        args["attrs"] = line.attrs
    if item.extra:
        args["extra"] = item.extra
    return _safe(args)  # type: ignore[no-any-return]


def device_args(
    line: schema.Device, phase: dict[str, Any] | None, item: RecordLine, ids: Context
) -> dict[str, Any]:
    """Args of a bracket: those of its phase, and what it was measured with."""
    args = dict(phase) if phase is not None else {"run_id": ids.run_id, "attempt": ids.attempt}
    args.update(
        phase_id=line.id,
        timing=line.timing,
        device=f"{line.device_type}:{line.device_index}",
        stream=line.stream,
        uncertainty_ns=line.uncertainty_ns,
    )
    if item.extra:
        args["extra"] = _safe(item.extra)
    return args


def _safe(value: Any) -> Any:
    """`value` with integers beyond 64 bits as text: Perfetto would wrap them."""
    if isinstance(value, dict):
        return {key: _safe(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_safe(inner) for inner in value]
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        return str(value)
    return value
