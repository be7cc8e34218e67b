"""Whole demos whose loop is told to do more than take turns, and their records against the driver's log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import whole_demo
from demo_records import by_name

from slime_profiler_plugin.layout import RunPaths, rollout_name
from slime_profiler_plugin.read import ProcessRecords, Run, read_run


class Demo(NamedTuple):
    """A demo that has run to its end."""

    told: dict[str, Any]
    folder: Path
    run: Run

    def log(self, what: str) -> dict[int | str, dict[str, Any]]:
        """What the driver says it did of this kind, by rollout."""
        entries = [entry for entry in self.told["log"] if entry["what"] == what]
        by_rollout = {entry["rollout"]: entry for entry in entries}
        assert len(by_rollout) == len(entries)
        return by_rollout

    def merged(self, rollout: int | str) -> Path:
        return RunPaths.at(self.folder).merged_file(rollout_name(rollout))


def run_demo(out: Path, **settings: Any) -> Demo:
    """Run one with two engines unless `settings` say more; fails the test if it fails."""
    told = whole_demo.run(out, "timeline", **{"engines": 2, **settings})
    assert "failed" not in told, told["failed"]
    assert told["exit_code"] == 0
    folder = Path(told["run_folder"])
    return Demo(told, folder, read_run([folder]))


def check_within(
    incarnations: Sequence[ProcessRecords], names: list[str], log: dict[int | str, dict[str, Any]]
) -> None:
    """Each such phase lies in the time in which the driver had its rollout done; each rollout has some."""
    phases = [phase for records in incarnations for name in names for phase in by_name(records)[name]]
    assert {phase.rollout for phase in phases} == set(log)
    for phase in phases:
        entry = log[phase.rollout]
        assert entry["start_ns"] < phase.start_ns, phase
        assert phase.start_ns + phase.dur_ns < entry["end_ns"], phase


def incarnation_of(process: str) -> int:
    """The number in the name of a process, 1 where it has none."""
    found = re.search(r"· incarnation (\d+) ·", process)
    return int(found[1]) if found else 1
