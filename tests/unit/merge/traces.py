"""Traces of anyone's, made up for tests, and merging them."""

from __future__ import annotations

import json
from collections import defaultdict

from reading import Merged, ns

from slime_profiler_plugin.merge import MergeOptions, merge_traces

#: Unix µs.
BASE_US = 1_785_620_044_000_000


def op(name, ts, dur, tid=1, pid=1, cat="cpu_op", **more):
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "pid": pid, "tid": tid, **more}


def end_of_arrow(ph, number, ts, tid=1, pid=1, cat="ac2g", name="ac2g", **more):
    event = {"ph": ph, "id": number, "ts": ts, "pid": pid, "tid": tid, "cat": cat, "name": name, **more}
    return {"bp": "e", **event} if ph == "f" else event


def write_trace(path, events, **top):
    """An object with `events`, whose times count from `BASE_US` where they are small."""
    shifted = [
        {**e, "ts": e["ts"] + BASE_US} if type(e.get("ts")) is int and e["ts"] < BASE_US else e
        for e in events
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"traceEvents": shifted, **top}))
    return path


def merge(paths, out, **options):
    """The report and what was written."""
    report = merge_traces(paths, out, MergeOptions(**{"jobs": 1, **options}))
    (output,) = report.outputs
    total = output.total
    assert total.read == total.written + total.described + total.joined + sum(total.dropped.values())
    merged = Merged(output.path)
    assert len(merged.events) == output.events == total.written
    return report, merged


def names(merged, ph="X"):
    return [event["name"] for event in merged.events if event["ph"] == ph]


def joined(merged):
    """The slices that each arrow leads from and to, by name, as far as both ends lie on one."""
    flows = defaultdict(dict)
    for event in merged.events:
        if event["ph"] in ("s", "f"):
            flows[event["id"]][event["ph"]] = event
    return sorted(
        (_slice_under(merged, f["s"]), _slice_under(merged, f["f"])) for f in flows.values() if len(f) == 2
    )


def _slice_under(merged, flow):
    at = ns(flow["ts"])
    found = [
        (ns(e["ts"]), -ns(e["dur"]), e["name"])
        for e in merged.events
        if e["ph"] == "X" and e["tid"] == flow["tid"] and ns(e["ts"]) <= at
    ]
    found = [each for each in found if at < each[0] - each[1] or each[0] == at]
    return max(found)[2] if found else None
