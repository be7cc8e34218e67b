"""Reading a merged file in tests: strictly, and by what it means."""

import gzip
import json
from collections import defaultdict
from pathlib import Path


def refuse(name):
    raise AssertionError(f"{name} is no strict JSON")


def load(path):
    """The file, read by a strict parser."""
    raw = Path(path).read_bytes()
    text = (gzip.decompress(raw) if str(path).endswith(".gz") else raw).decode("utf-8")
    return json.loads(text, parse_constant=refuse, parse_float=str)


def ns(text):
    """A ``ts`` or ``dur`` as exact ns."""
    whole, _, part = str(text).partition(".")
    assert len(part) <= 3, f"{text} has more than three decimals"
    return int(whole) * 1000 + int(part.ljust(3, "0"))


class Merged:
    """A merged file: `events` from inputs, `notes` of the merge, `processes` and `threads` by number."""

    def __init__(self, path):
        self.top = load(path)
        self.events = []
        self.notes = []
        self.processes = {}
        self.labels = {}
        self.threads = {}
        for event in self.top["traceEvents"]:
            if event.get("cat") == "note":
                self.notes.append(event)
            elif event["ph"] != "M":
                self.events.append(event)
            elif event["name"] == "process_name":
                assert event["pid"] not in self.processes
                self.processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "process_labels":
                self.labels[event["pid"]] = event["args"]["labels"]
            elif event["name"] == "thread_name":
                assert event["tid"] not in self.threads
                self.threads[event["tid"]] = (event["pid"], event["args"]["name"])

    @property
    def base_ns(self):
        return self.top["slime_profiler_merge"]["base_ns"]

    def slices(self, process=None, name=None):
        """(name, start, end, thread name, args) of complete events; times on the reference clock."""
        found = []
        for event in self.events:
            if event["ph"] != "X" or (name is not None and event["name"] != name):
                continue
            if process is not None and self.processes[event["pid"]] != process:
                continue
            start = ns(event["ts"]) + self.base_ns
            end = start + ns(event["dur"])
            found.append((event["name"], start, end, self.threads[event["tid"]][1], event.get("args", {})))
        return sorted(found, key=lambda s: (s[1], -s[2], s[0]))

    def arrows(self):
        """((process, slice name), (process, slice name)) that each arrow joins."""
        flows = defaultdict(dict)
        for event in self.events:
            if event["ph"] in ("s", "f"):
                assert event["ph"] not in flows[event["id"]]
                flows[event["id"]][event["ph"]] = event
        return sorted(
            (self._enclosing(f["s"]), self._enclosing(f["f"])) for f in flows.values() if len(f) == 2
        )

    def _enclosing(self, flow):
        """The innermost slice that is open on the flow event's track at its time."""
        at = ns(flow["ts"])
        on_track = [
            (ns(e["ts"]), -ns(e["dur"]), e["name"], e.get("args", {}).get("bucket"))
            for e in self.events
            if e["ph"] == "X" and (e["pid"], e["tid"]) == (flow["pid"], flow["tid"])
        ]
        _, _, name, bucket = max(s for s in on_track if s[0] <= at < s[0] - s[1])
        return self.processes[flow["pid"]], name, bucket

    def assert_valid(self):
        """What holds for every merged file: known tracks, no crossing, nothing before the origin."""
        tracks = defaultdict(list)
        pids = set(self.processes)
        for event in (*self.notes, *self.events):
            assert isinstance(event["pid"], int)
            assert isinstance(event["tid"], int)
            assert 0 < event["pid"] < 2**32
            assert event["pid"] in pids
            assert self.threads[event["tid"]][0] == event["pid"]
            assert ns(event["ts"]) >= 0
            if event["ph"] == "X":
                start = ns(event["ts"])
                tracks[event["tid"]].append((start, start + ns(event["dur"])))
            if "id" in event:
                assert isinstance(event["id"], int)
                assert 0 < event["id"] < 2**63
        for slices in tracks.values():
            assert_nested(slices)


def assert_nested(slices):
    """No slice outlives one that it began in."""
    open_ends = []
    for start, end in sorted(slices, key=lambda s: (s[0], -s[1])):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1], (
            f"{start}..{end} crosses one that ends at {open_ends[-1]}"
        )
        open_ends.append(end)
