"""Files that stand outside of the project, merged through the command line and read back."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import command_line
import pytest
from merged_trace import events_of, find_faults, ns, read_merged

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("SLIME_PROFILER_SHARED") or ROOT.parent / "shared")
BUGS = SHARED / "bugs"
TRACES = SHARED / "traces"

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the traces and cases stand in a folder that SLIME_PROFILER_SHARED names"
)


class Merged(NamedTuple):
    """What ``slime-profiler merge`` did: its report, and the file it wrote."""

    exit_code: int
    report: dict[str, Any]
    path: Path
    events: list[dict[str, Any]]

    def of_phase(self, phases: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["ph"] in phases]

    @property
    def slices(self) -> list[dict[str, Any]]:
        return self.of_phase("X")

    def slice_named(self, name: str) -> dict[str, Any]:
        (found,) = [event for event in self.slices if event["name"] == name]
        return found

    def process_of(self, event: dict[str, Any]) -> str:
        """The name of its process, of which there must be one."""
        (name,) = self._told("process_name", lambda other: other["pid"] == event["pid"])
        return name

    def thread_of(self, event: dict[str, Any]) -> str:
        (name,) = self._told(
            "thread_name", lambda other: (other["pid"], other["tid"]) == (event["pid"], event["tid"])
        )
        return name

    def _told(self, what: str, belongs: Any) -> list[str]:
        named = [event for event in self.of_phase("M") if event["name"] == what and belongs(event)]
        return [event["args"]["name"] for event in named]

    @property
    def total(self) -> dict[str, Any]:
        """The conservation report of the one output."""
        (output,) = self.report["outputs"]
        return output["total"]

    def damage(self, kind: str) -> list[dict[str, Any]]:
        return [entry for entry in self.report["damage"] if entry["kind"] == kind]

    def said(self) -> str:
        """Everything that the report says of damage and doubt, as one text."""
        return json.dumps([self.report["damage"], self.report["warnings"], self.report["ignored"]])


def merge(paths: Path | Iterable[Path], folder: Path, *options: str) -> Merged:
    """Merge through the command line, and check what must hold in every output."""
    listed = [paths] if isinstance(paths, Path) else list(paths)
    out = folder / "merged.json.gz"
    done = command_line.run("merge", *listed, "-o", out, "--json", *options)
    assert done.stdout.startswith("{"), (done.exit_code, done.stderr, done.exception)
    merged = Merged(done.exit_code, json.loads(done.stdout), out, events_of(out))
    assert find_faults(merged.events) == []
    assert_conserved(merged)
    return merged


def assert_conserved(merged: Merged) -> None:
    """The sums of the report are right, and so are its counts of what the file holds."""
    total = merged.total
    accounted = sum(total[key] for key in ("written", "other_rollouts", "described", "joined"))
    assert total["read"] == accounted + sum(total["dropped"].values())


def span(events: Sequence[dict[str, Any]]) -> int:
    """From the first start to the last end, in ns."""
    starts = [ns(event["ts"]) for event in events]
    return max(ns(event["ts"]) + ns(event.get("dur", 0)) for event in events) - min(starts)


def flow_pairs(merged: Merged) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(start, end) of each arrow that has both, by the time of its start."""
    ends: dict[Any, dict[str, dict[str, Any]]] = defaultdict(dict)
    for event in merged.of_phase("sf"):
        ends[event["id"]][event["ph"]] = event
    pairs = [(pair["s"], pair["f"]) for pair in ends.values() if len(pair) == 2]
    return sorted(pairs, key=lambda pair: pair[0]["ts"])


def names(events: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(event["name"] for event in events)


def head_of(path: Path) -> dict[str, Any]:
    """The top-level keys without the events."""
    return {key: value for key, value in read_merged(path).items() if key != "traceEvents"}
