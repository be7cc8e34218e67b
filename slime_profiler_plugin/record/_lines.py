"""From what the hot path queued to lines that every reader can decode.

Fields come from the program and may be anything. A column takes a value of its own type and
no other; what does not fit goes to ``attrs``, as `Values` can say it.
"""

from __future__ import annotations

import numbers
from collections import Counter
from typing import Any, Final, TypeAlias

import msgspec

from slime_profiler_plugin import schema

from ._guard import FAILURE
from ._queue import RawRecord, Record
from ._values import Values, as_text, clean

_INTEGERS: Final = frozenset({"step", "bytes", "tensors", "bucket", "sync"})
_TEXTS: Final = frozenset({"transport", "source", "weight_version", "error"})
_EITHER: Final = frozenset({"engine"})
_COLUMNS: Final = _INTEGERS | _TEXTS | _EITHER
_TAKES_INTEGERS: Final = _INTEGERS | _EITHER
_TAKES_TEXTS: Final = _TEXTS | _EITHER
_INT64: Final = 2**63


class PlainPhase(msgspec.Struct, tag_field="kind", tag="phase", omit_defaults=True, gc=False):
    """A `schema.Phase` with no field of the program's: the common case, made five times as fast.

    `gc=False`: it holds plain values only.
    """

    name: str
    id: int
    start_ns: int
    dur_ns: int
    tid: int
    task: int | None = None
    parent: int | None = None
    rollout: schema.Rollout = None


AnyLine: TypeAlias = "schema.Line | PlainPhase"


def to_line(item: RawRecord, name: str) -> AnyLine:
    """The line of a queued phase or mark, whose name is `name` as text."""
    _, phase_id, parent, rollout, start, end, tid, task, fields, error = item
    if fields is None and error is None and phase_id is not None:
        return PlainPhase(name, phase_id, start, end - start, tid, task, parent, rollout)
    columns = _columns(fields) if fields else {}
    if error is not None:
        columns["error"] = clean(error)
    if phase_id is None:
        return schema.Mark(
            name=name, start_ns=start, tid=tid, task=task, parent=parent, rollout=rollout, **columns
        )
    return schema.Phase(
        id=phase_id,
        name=name,
        start_ns=start,
        dur_ns=end - start,
        tid=tid,
        task=task,
        parent=parent,
        rollout=rollout,
        **columns,
    )


def open_line(record: Record, seen_ns: int) -> schema.Open:
    """The line of a phase that has not ended; the record's end is not looked at."""
    columns = _columns(record.fields) if record.fields else {}
    return schema.Open(
        id=record.id or 0,
        seen_ns=seen_ns,
        name=as_text(record.name),
        start_ns=record.start_ns,
        tid=record.tid,
        task=record.task,
        parent=record.parent,
        rollout=record.rollout,
        **columns,
    )


def drop_line(drop: schema.Drop) -> schema.Drop:
    """The line of `drop`, whose texts may come from the program."""
    names: Counter[str] = Counter()
    for name, count in drop.names.items():
        names[as_text(name)] += count
    return schema.Drop(
        at_ns=drop.at_ns, what=clean(drop.what), reason=clean(drop.reason), count=drop.count, names=names
    )


def check_rollout(value: object) -> schema.Rollout:
    """`value` as a rollout id. Raises `ValueError` for what is none."""
    if value is None:
        return None
    if value == schema.INITIAL:
        return schema.INITIAL
    if isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= 0:
        return int(value)
    raise ValueError(f"rollout {value!r} is neither a number >= 0 nor {schema.INITIAL!r} nor None")


def _columns(fields: dict[str, object]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    rest: list[tuple[str, object]] = []
    for key, value in list(fields.items()):  # in one step: a span that ends meanwhile adds to them
        # Nearly every value is of exactly its column's type, which is quick to see.
        if type(value) is int:
            fits = key in _TAKES_INTEGERS and -_INT64 <= value < _INT64
        else:
            fits = type(value) is str and key in _TAKES_TEXTS and value.isascii()
        if fits:
            columns[key] = value
            continue
        if key in _COLUMNS:
            if value is None:
                continue
            fitting = _fitting(key, value)
            if fitting is not None:
                columns[key] = fitting
                continue
        rest.append((key, value))
    if rest:
        columns["attrs"] = Values().attrs(rest)
    return columns


def _fitting(key: str, value: object) -> int | str | None:
    try:
        if key not in _TEXTS and isinstance(value, numbers.Integral):
            number = int(value)
            return number if -_INT64 <= number < _INT64 else None
        if key not in _INTEGERS and isinstance(value, str):
            return clean(value)
    except FAILURE:  # what cannot even be asked for its type goes to attrs, by name of it
        return None
    return None
