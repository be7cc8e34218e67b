"""A sync that takes too long, in a real loop: the driver asks for a window, every trainer rank records it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from demo_records import of_role
from merged_trace import events_of
from recordings import environment

pytest.importorskip("torch")
pytest.importorskip("ray")

from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.read import read_run
from slime_profiler_plugin.record._window_requests import TOO_LATE

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
#: Three rollouts after the slow one.
WINDOW = 6


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script = Path(__file__).with_name("slow_sync_session.py")
    folder = tmp_path_factory.mktemp("slow_sync")
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def paths(told: dict[str, Any]) -> RunPaths:
    return RunPaths.at(told["run_folder"])


def test_the_driver_asks_once_and_says_why(paths: RunPaths) -> None:
    (file,) = (paths.root / "trigger").iterdir()
    request = json.loads(file.read_bytes())
    assert (request["asked_in"], request["rollout"]) == (WINDOW - 3, WINDOW)
    assert (request["took_ns"], request["p95_ns"], request["syncs"]) == (16 * 10**9, 10 * 10**9, 3)
    (driver,) = of_role(read_run([paths.root]), "driver")
    (mark,) = [mark for mark in driver.marks() if mark.name == "slow_sync"]
    assert (mark.rollout, mark.attrs["window"]) == (WINDOW - 3, WINDOW)


def test_every_rank_records_the_window_or_says_that_it_came_too_late(paths: RunPaths) -> None:
    files = sorted(path for path in paths.traces.rglob("*") if path.is_file())
    assert {path.parent.name for path in files} <= {f"rollout_{WINDOW:06d}"}
    seen = {path.name.partition(".")[0] for path in files}
    late = {
        f"actor-{process.process.rank}"
        for process in of_role(read_run([paths.root]), "actor")
        for drop in process.drops
        if (drop.what, drop.reason, drop.count) == ("trace", TOO_LATE, 1)
    }
    assert seen | late == {"actor-0", "actor-1"}
    assert not seen & late


def test_the_window_is_in_the_rollouts_timeline(told: dict[str, Any], paths: RunPaths) -> None:
    assert told["exit_code"] == 0
    files = [path for path in paths.traces.rglob("*") if path.is_file()]
    events = events_of(paths.merged_file(f"rollout_{WINDOW:06d}"))
    assert any(event.get("cat") == "cpu_op" for event in events) == bool(files)
