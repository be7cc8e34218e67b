"""What a demo's folder holds, counted without the code under test, and what Perfetto sees of it merged."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from perfetto import Perfetto

SLICES = """
select s.id, s.name, s.category as cat, s.ts, s.dur, process.name as process,
  extract_arg(s.arg_set_id, 'args.phase_id') as phase_id,
  extract_arg(s.arg_set_id, 'args.run_id') as run_id,
  extract_arg(s.arg_set_id, 'args.attempt') as attempt,
  extract_arg(s.arg_set_id, 'args.rollout') as rollout,
  extract_arg(s.arg_set_id, 'args.sync') as sync,
  extract_arg(s.arg_set_id, 'args.bucket') as bucket,
  extract_arg(s.arg_set_id, 'args.source') as source
from slice s join thread_track t on t.id = s.track_id join thread using (utid) join process using (upid)
order by s.ts, s.id
"""
ARROWS = "select slice_out, slice_in from flow"
_RANK = re.compile(r"(actor|engine)(?: rank)? (\d+) ·")


def load(path: Path) -> dict[str, Any]:
    """A trace file."""
    raw = path.read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    return found


class Inputs(NamedTuple):
    """`lines` of all record files, `windows` by (rollout of the folder, rank)."""

    lines: list[dict[str, Any]]
    windows: dict[tuple[int, int], dict[str, Any]]

    @property
    def events(self) -> int:
        return len(self.lines) + sum(len(w["traceEvents"]) for w in self.windows.values())

    def pairs(self) -> int:
        """Flows of one window that have one start and one end."""
        return sum(complete_pairs(window["traceEvents"]) for window in self.windows.values())


def complete_pairs(events: list[dict[str, Any]], category: str = "fwdbwd") -> int:
    ends: dict[object, Counter[str]] = defaultdict(Counter)
    for event in events:
        if event.get("cat") == category:
            ends[event["id"]][event["ph"]] += 1
    return sum(counts == {"s": 1, "f": 1} for counts in ends.values())


def read_inputs(*folders: Path) -> Inputs:
    """Everything below the run folders. Their parts must not overlap."""
    lines: list[dict[str, Any]] = []
    windows = {}
    for folder in folders:
        for file in sorted((folder / "records").rglob("*.jsonl")):
            lines += map(json.loads, file.read_text().splitlines())
        for file in sorted((folder / "traces").rglob("*.json*")):
            rollout = int(file.parent.name.removeprefix("rollout_"))
            rank = int(file.name.removeprefix("actor-").partition(".")[0])
            assert (rollout, rank) not in windows
            windows[rollout, rank] = load(file)
    return Inputs(lines, windows)


def own_arrows(told: dict[str, Any]) -> int:
    """Arrows that the merge made of records; those of traces were there before."""
    return sum(told["arrows_drawn"].values())


def check_conservation(merged: dict[str, Any], inputs: Inputs) -> None:
    """The file's own account agrees with what was read and with what it holds."""
    told = merged["slime_profiler_conservation"]
    total = told["total"]
    assert total["read"] == inputs.events
    for key in ("read", "written", "other_rollouts", "described"):
        assert total[key] == sum(source[key] for source in told["sources"]), key
    # Names of processes and threads, and slices that say what the file is, come from no input.
    events = sum(event["ph"] != "M" and event.get("cat") != "note" for event in merged["traceEvents"])
    assert total["written"] == events - 2 * own_arrows(told)
    accounted = total["written"] + total["other_rollouts"] + total["described"]
    assert total["read"] == accounted + sum(total["dropped"].values())


class Seen(NamedTuple):
    """A merged file in Perfetto."""

    slices: dict[int, dict[str, Any]]
    arrows: list[tuple[dict[str, Any], dict[str, Any]]]
    errors: list[dict[str, Any]]

    def bucket_arrows(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        return [each for each in self.arrows if each[0]["name"] == "bucket_send"]

    def other_arrows(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        return [each for each in self.arrows if each[0]["name"] != "bucket_send"]


def ask(perfetto: Perfetto, path: Path) -> Seen:
    rows, arrows, errors = perfetto.query(path, SLICES, ARROWS)
    slices = {row["id"]: row for row in rows}
    return Seen(slices, [(slices[a["slice_out"]], slices[a["slice_in"]]) for a in arrows], errors)


def rank_of(row: dict[str, Any]) -> tuple[str, int] | None:
    """Role and rank of the process that a slice stands in."""
    found = _RANK.match(row["process"] or "")
    return (found[1], int(found[2])) if found else None


def check_arrows(seen: Seen, buckets: int, engines: int) -> None:
    """One from each bucket to each engine, and the rest within a rank."""
    joined = Counter((rank_of(start), rank_of(end), end["name"]) for start, end in seen.bucket_arrows())
    wanted = {(("actor", 0), ("engine", e), "engine_receive"): buckets for e in range(engines)}
    assert joined == wanted
    for start, end in seen.other_arrows():
        assert rank_of(start) == rank_of(end) is not None
        assert start["process"] == end["process"]
