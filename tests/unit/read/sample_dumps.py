"""Dumps as slime saves them, made by hand."""

import torch

#: A Unix time, in seconds, that a double holds to 2^-22.
AT = 1_790_000_000.0


def event(kind, name, at, span_id=None, **more):
    made = {"type": kind, "name": name, "ts": at, "trace_id": "t", "attempt": 0, **more}
    return made if span_id is None else {**made, "span_id": span_id}


def span(name, start, end, span_id, start_attrs=None, end_attrs=None):
    """Both events of a span."""
    return [
        event("span_start", name, start, span_id, **({"attrs": start_attrs} if start_attrs else {})),
        event("span_end", name, end, span_id, **({"attrs": end_attrs} if end_attrs else {})),
    ]


def sample(index, events, **more):
    trace = {"version": 1, "trace_id": f"t{index}", "sample_id": index, "group_id": index // 4, "attempt": 0}
    return {"index": index, "group_index": index // 4, "trace": {**trace, "events": events}, **more}


def save(path, samples, rollout=3):
    torch.save({"rollout_id": rollout, "samples": samples}, path)
    return path
