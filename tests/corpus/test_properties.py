"""What holds for any ranks: the order of inputs and the number of jobs do not show, and nothing is lost."""

from __future__ import annotations

import gzip
import json
import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from merged_trace import events_of, find_faults, ns
from reference import to_ns

from slime_profiler_plugin.merge import MergeError, MergeOptions, merge_traces

pytestmark = pytest.mark.timeout(300)

BASES = (None, 1_782_967_788_000_000_000, 1_790_857_026_000_000_000)
PIDS = st.sampled_from([0, 1, 4001, "Spans", "", "4001", -1, 2**33 + 1])
TIDS = st.sampled_from([0, 7, "7", "stream 7", -5, 15514734831341844875, "worker:ab"])
TIMES = st.integers(1, 400).map(lambda n: n * 250 / 1000)
IDS = st.sampled_from([1, 2, 2**40, "0x1f", "id42", 2**63])


@st.composite
def track_events(draw):
    """An event, or the two of an arrow or an asynchronous slice."""
    where = {"pid": draw(PIDS), "tid": draw(TIDS)}
    at, took = draw(TIMES), draw(TIMES)
    kind = draw(st.sampled_from("XXXXsbiC"))
    if kind == "X":
        return [{"ph": "X", **where, "ts": at, "dur": took, "args": {"correlation": draw(st.integers(0, 3))}}]
    if kind == "i":
        return [{"ph": "i", "s": "t", **where, "ts": at}]
    if kind == "C":
        return [{"ph": "C", **where, "ts": at, "args": {"length": draw(st.integers(0, 9))}}]
    same = {"cat": draw(st.sampled_from(["ac2g", "fwdbwd"])), "id": draw(IDS)}
    if kind == "s":
        end = {"pid": draw(PIDS), "tid": draw(TIDS), "ts": at + took, "bp": "e"}
        return [{"ph": "s", **where, **same, "ts": at}, {"ph": "f", **same, **end}]
    return [{"ph": "b", **where, **same, "ts": at}, {"ph": "e", **where, **same, "ts": at + took}]


@st.composite
def files(draw):
    """One rank's file: (its name, its text, whether it was cut)."""
    events = [event for few in draw(st.lists(track_events(), max_size=25)) for event in few]
    for number, event in enumerate(events):
        event["name"] = f"{event['ph']}{number}" if event["ph"] in "XiC" else "joined"
    chance = random.Random(draw(st.integers(0, 2**32)))
    shuffled = [dict(chance.sample(list(event.items()), len(event))) for event in events]
    indent = draw(st.sampled_from([None, None, 1, 2]))
    space = draw(st.sampled_from([(",", ":"), (", ", ": "), (",\n", ":")]))
    base, rank = draw(st.sampled_from(BASES)), draw(st.sampled_from([None, 0, 1, 2, 3]))
    if draw(st.integers(0, 5)) == 0:
        content = shuffled
    else:
        about = {"schemaVersion": 1, "traceEvents": shuffled}
        if base is not None:
            about["baseTimeNanoseconds"] = base
        if rank is not None:
            about["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 4}
        content = dict(chance.sample(list(about.items()), len(about)))
    text = json.dumps(content, indent=indent, separators=None if indent else space)
    cut = draw(st.integers(1, len(text))) if draw(st.integers(0, 3)) == 0 else None
    return draw(st.sampled_from(["json", "json.gz"])), text[:cut], cut is not None


def write(folder: Path, inputs) -> list[Path]:
    paths = []
    for number, (suffix, text, _) in enumerate(inputs):
        path = folder / f"trace_{number}.{suffix}"
        data = text.encode()
        path.write_bytes(gzip.compress(data, mtime=0) if suffix.endswith("gz") else data)
        paths.append(path)
    return paths


def merged_bytes(paths, out, jobs):
    """The output and the report, or the words of the error."""
    try:
        report = merge_traces(paths, out, MergeOptions(jobs=jobs))
    except MergeError as error:
        return str(error), None
    return out.read_bytes(), report


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(files(), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_order_jobs_and_repetition_do_not_show(inputs, chance):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write(folder, inputs)
        first, _ = merged_bytes(paths, folder / "out.json", 1)
        again, _ = merged_bytes(paths, folder / "out.json", 1)
        assert first == again
        chance.shuffle(paths)
        assert merged_bytes(paths, folder / "out.json", 1)[0] == first
        assert merged_bytes(paths, folder / "out.json", 2)[0] == first


def _listed(content):
    return content if isinstance(content, list) else content["traceEvents"]


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(files(), min_size=1, max_size=4))
def test_nothing_is_lost_and_the_output_is_sound(inputs):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write(folder, inputs)
        _, report = merged_bytes(paths, folder / "out.json", 1)
        if report is None:
            for _, text, cut in inputs:
                assert cut or all(event["ph"] in "sf" for event in _listed(json.loads(text)))
            return
        (output,) = report.outputs
        output.total.check()
        events = events_of(folder / "out.json")
        assert find_faults(events) == []
        wanted = Counter()
        for _, text, cut in inputs:
            if not cut:
                listed = _listed(json.loads(text))
                wanted.update((e["name"], to_ns(e.get("dur", 0))) for e in listed if e["ph"] in "XiC")
        found = Counter((e["name"], ns(e.get("dur", 0))) for e in events if e["ph"] in "XiC")
        assert wanted - found == Counter()
        if any(cut for _, _, cut in inputs):
            return
        # Nothing but ends of arrows that a viewer could not draw: they lie on no slice.
        assert all("arrow" in reason for reason in output.total.dropped), output.total.dropped
