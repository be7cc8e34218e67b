"""Every trace of the corpus: as many events as a lenient parser finds, and times exact to 1 ns."""

from __future__ import annotations

import gzip
import json
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pytest
from corpus import SHARED, needs_shared

from slime_profiler_plugin.clock import decimal_us_to_ns
from slime_profiler_plugin.read import TraceRefusedError, open_trace, read_pieces

pytestmark = needs_shared

FILES = sorted(
    str(path.relative_to(SHARED))
    for folder in ("traces", "bugs")
    for path in (SHARED / folder).rglob("*.json*")
)
#: Files that no lenient parser takes whole: events that are read, and those known to be lost.
TORN = {
    "bugs/08-two-ranks-one-path/mixed.json": (1, 4),
    "bugs/32-truncated-gzip/rank1.json.gz": (105, 1),
    "traces/own_gen/odd/derived_truncated_rank1.pt.trace.json.gz": (248, 1),
    "traces/own_gen/odd/derived_truncated_rank2.pt.trace.json": (60, 1),
    "traces/own_gen/odd/torch2141_odd_metadata.json": (19, 0),
    "traces/own_gen/odd/torch231_legacy_autograd.json": (19, 1),
    "traces/own_gen/odd/torch231_odd_names.json": (126, 2),
    "traces/perfetto_cases/test_args_ordered.json": (2, 0),
    "traces/perfetto_cases/test_json_incomplete.json": (1, 0),
    "traces/perfetto_cases/test_json_trailing_comma.json": (2, 0),
}
REFUSED = {
    "bugs/05-prefix-and-old-merge-in-dir/merged-run1.trace.json.gz",
    "traces/sglang/tp2/merged-run1-rollout0009.trace.json.gz",
}


def parse(path: Path) -> list[dict[str, Any]]:
    """The events, by Python's own parser, numbers as decimals."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8", "replace")
    told = json.loads(text, strict=False, parse_float=Decimal, parse_int=Decimal)
    return told["traceEvents"] if isinstance(told, dict) else told


def exact_ns(value: Any) -> int | None:
    try:
        return int((Decimal(value) * 1000).quantize(Decimal(1), ROUND_HALF_UP))
    except (InvalidOperation, TypeError, ValueError):
        return None


def read_ns(value: Any) -> int | None:
    try:
        return decimal_us_to_ns(bytes(value).strip(b'"'))
    except ValueError:
        return None


@pytest.mark.parametrize("name", [name for name in FILES if name not in REFUSED])
def test_all_events_with_exact_times(name: str) -> None:
    trace = open_trace(SHARED / name)
    damage: list[Any] = []
    events = [event for piece in read_pieces(trace, damage) for event in piece]
    again = [event for piece in read_pieces(trace, []) for event in piece]
    assert [(e.ph, e.pid, e.tid, bytes(e.ts or b"")) for e in events] == [
        (e.ph, e.pid, e.tid, bytes(e.ts or b"")) for e in again
    ]
    lost = sum(one.lost for one in damage)
    if name in TORN:
        assert (len(events), lost) == TORN[name]
        return
    expected = parse(SHARED / name)
    assert (len(events), lost) == (len(expected), 0)
    for event, one in zip(events, expected, strict=True):
        for key in ("ts", "dur"):
            if key in one:
                assert read_ns(getattr(event, key)) == exact_ns(one[key]), (event, one)
        assert event.ph == one.get("ph", "")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_merged_files_are_refused(name: str) -> None:
    with pytest.raises(TraceRefusedError, match="merged"):
        open_trace(SHARED / name)
