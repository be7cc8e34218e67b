"""Small traces for the rules: what is not said is in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from slime_profiler_plugin.check import Finding, check_paths

BASE_NS = 1_751_328_000_000_000_000


def slice_(name: str = "op", ts: Any = 5, dur: Any = 1, **fields: Any) -> dict[str, Any]:
    """A complete slice; a field that is ``None`` is left out."""
    event = {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, **fields}
    return {key: value for key, value in event.items() if value is not None}


def event(ph: str, ts: Any = 5, **fields: Any) -> dict[str, Any]:
    """An event of any kind on thread 1; a field that is ``None`` is left out."""
    made = {"ph": ph, "name": ph, "pid": 1, "tid": 1, "ts": ts, **fields}
    return {key: value for key, value in made.items() if value is not None}


def flow(ph: str, ts: float, tid: int = 1, key: Any = 1, **fields: Any) -> dict[str, Any]:
    """An end of an arrow of category ``req`` with the id `key`."""
    ends = {"bp": "e"} if ph == "f" else {}
    return event(ph, ts, tid=tid, id=key, cat="req", name="req", **ends, **fields)


def named(kind: str, name: str, pid: Any = 1, tid: Any = 1, **fields: Any) -> dict[str, Any]:
    """A metadata event."""
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}, **fields}


def write(path: Path, events: list[dict[str, Any]], **top: Any) -> Path:
    """A trace with a base, unless `top` says otherwise."""
    content = {"baseTimeNanoseconds": BASE_NS, **top, "traceEvents": events}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    return path


def findings(tmp_path: Path, *events: dict[str, Any], **top: Any) -> dict[str, Finding]:
    """What a trace of these events gives, by code."""
    report = check_paths([write(tmp_path / "trace.json", list(events), **top)])
    return {finding.code: finding for finding in report.findings}


def text_findings(tmp_path: Path, text: str | bytes) -> dict[str, Finding]:
    """What a file with this text gives, by code."""
    path = tmp_path / "trace.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return {finding.code: finding for finding in check_paths([path]).findings}
