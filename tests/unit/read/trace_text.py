"""Traces as text, and what is read of them, in plain Python values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import UNSET, Raw

from slime_profiler_plugin.read import Damage, TraceEvent, open_trace, read_pieces


def fields_of(event: TraceEvent) -> dict[str, Any]:
    """An event as the JSON object that it was."""
    fields: dict[str, Any] = {"ph": event.ph} if event.ph else {}
    for name in ("cat", "name", "pid", "tid", "ts", "dur", "id", "bp", "s", "args"):
        value = getattr(event, name)
        if value is not UNSET:
            fields[name] = json.loads(bytes(value)) if isinstance(value, Raw) else value
    return fields if event.more is UNSET else {**fields, **event.more}


def read_fields(path: Path) -> tuple[list[dict[str, Any]], list[Damage]]:
    """Every event of a trace, and what was wrong with it."""
    damage: list[Damage] = []
    pieces = read_pieces(open_trace(path), damage)
    return [fields_of(event) for piece in pieces for event in piece], damage


def read_text(folder: Path, text: str | bytes) -> tuple[list[dict[str, Any]], list[Damage]]:
    """As `read_fields`, of a file with this content."""
    path = folder / "trace.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_fields(path)


def make_events(count: int) -> list[dict[str, Any]]:
    """Plain slices, told apart by their names."""
    times = {"pid": 7, "tid": 7, "dur": 1}
    return [{"ph": "X", "name": f"op{number}", **times, "ts": number} for number in range(count)]
