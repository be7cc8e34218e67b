"""A torch.profiler window as torch 2.13 lays it out, without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isal import igzip

from slime_profiler_plugin import schema
from slime_profiler_plugin.clock import ns_to_decimal_us
from slime_profiler_plugin.layout import RunPaths

from ._process_file import ProcessFile

#: The base that torch.profiler used in the last quarter of 2026.
_BASE_NS = 1_790_857_026_000_000_000


def write_trace_window(
    out: Path | str,
    process: ProcessFile,
    rollouts: list[int | str],
    events: list[dict[str, Any]],
    *,
    base_ns: int = _BASE_NS,
    pairs: list[tuple[int, int, int]] | None = None,
) -> Path:
    """Write `events` as the window of `process` over `rollouts`; the file's path is returned.

    An event's ``ts_ns`` (ns of the process's clock domain) and ``dur_ns`` become ``ts`` and
    ``dur`` in microseconds relative to `base_ns`. `pairs`: clock pairs besides the record file's,
    by default one at the process's start.
    """
    who = process.process
    pairs = pairs or [(who.start_ns, who.start_unix_ns, 100)]
    shift = process.epoch_ns - base_ns
    head = json.dumps(
        {
            "schemaVersion": 1,
            "deviceProperties": [],
            schema.WINDOW_IDENTITY_KEY: schema.window_identity(who, pairs),
            schema.WINDOW_ROLLOUTS_KEY: rollouts,
            "distributedInfo": {"backend": "gloo", "rank": who.rank, "world_size": who.world_size},
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": base_ns,
        },
        indent=2,
    )
    body = ",\n  ".join(_lay_out(event, shift) for event in events)
    text = f'{head[:-2]},\n    "traceEvents": [\n  {body}\n  ],"traceName": "t.json" }}\n'
    path = RunPaths(out, who.run_id).trace_file(
        rollouts[0], who.role or "unknown", who.rank, who.start_unix_ns
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(igzip.compress(text.encode()))
    return path


def _lay_out(event: dict[str, Any], shift_ns: int) -> str:
    """One event, one field to a line, braces where torch 2.13 puts them."""
    fields = dict(event)
    times = []
    if "ts_ns" in fields:
        times.append(f'"ts": {ns_to_decimal_us(fields.pop("ts_ns") + shift_ns)}')
    if "dur_ns" in fields:
        times.append(f'"dur": {ns_to_decimal_us(fields.pop("dur_ns"))}')
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in fields.items()]
    return "{\n    " + ",\n    ".join([*lines[:1], *times, *lines[1:]]) + "\n  }"
