"""Who learns of a window that the driver asks for, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recordings import stop

from slime_profiler_plugin import timeline
from slime_profiler_plugin.config import Config
from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.record import _window_requests
from slime_profiler_plugin.record._drops import Drops
from slime_profiler_plugin.record._guard import Guard
from slime_profiler_plugin.record._part import PartContext
from slime_profiler_plugin.record._window_requests import (
    NONE_LEFT,
    TOO_LATE,
    WindowRequest,
    WindowRequests,
    publish,
)
from slime_profiler_plugin.schema import Process


def make_part(folder: Path, attempt: int = 0) -> PartContext:
    process = Process(
        run_id="run",
        attempt=attempt,
        host="node",
        pid=1,
        incarnation="1-1",
        start_ns=1,
        start_unix_ns=1,
        clock_domain="boot",
    )
    drops = Drops()
    return PartContext(process, RunPaths(folder, "run"), Config(), Guard(drops), drops)


def request(rollout: int) -> WindowRequest:
    return WindowRequest(rollout=rollout, asked_in=rollout - 3, took_ns=2, p95_ns=1, syncs=20, at_unix_ns=3)


class Later:
    """The writer's thread: does its errands when it is told to."""

    def __init__(self) -> None:
        self.errands: list[Callable[[], object]] = []

    def run(self, _part: str, errand: Callable[[], object]) -> None:
        self.errands.append(errand)

    def work(self) -> None:
        errands, self.errands = self.errands, []
        for errand in errands:
            errand()


@pytest.fixture
def part(tmp_path: Path) -> PartContext:
    return make_part(tmp_path)


def lost(part: PartContext) -> list[tuple[str, int]]:
    return [(drop.reason, drop.count) for drop in part.drops.take()]


def test_a_window_is_taken_in_its_rollout_once(part: PartContext) -> None:
    writer = Later()
    requests = WindowRequests(part, 3, writer.run)
    taken = []
    for rollout in range(8):
        if rollout == 2:
            publish(part, request(5), 3)
        if requests.takes(rollout):
            taken.append(rollout)
        writer.work()
    assert taken == [5]
    assert lost(part) == []


def test_who_looks_too_late_skips_and_counts(part: PartContext) -> None:
    writer = Later()
    requests = WindowRequests(part, 3, writer.run)
    publish(part, request(2), 3)
    publish(part, request(6), 3)
    # The writer is held up until rollout 3 has begun.
    taken = []
    for rollout in range(8):
        if requests.takes(rollout):
            taken.append(rollout)
        if rollout >= 3:
            writer.work()
    assert taken == [6]
    assert lost(part) == [(TOO_LATE, 1)]


def test_a_window_before_a_process_began_is_none_of_its_business(part: PartContext) -> None:
    publish(part, request(2), 3)
    writer = Later()
    requests = WindowRequests(part, 3, writer.run)
    for rollout in range(7, 11):
        assert not requests.takes(rollout)
        writer.work()
    assert lost(part) == []


def test_windows_of_another_attempt_are_not_taken(part: PartContext, tmp_path: Path) -> None:
    publish(part, request(2), 3)
    writer = Later()
    requests = WindowRequests(make_part(tmp_path, attempt=1), 3, writer.run)
    for rollout in range(4):
        assert not requests.takes(rollout)
        writer.work()


def test_an_attempt_has_no_more_windows_than_allowed(part: PartContext) -> None:
    for rollout in (5, 8, 11):
        publish(part, request(rollout), 2)
    assert lost(part) == [(NONE_LEFT, 1)]
    assert len(list((part.paths.root / "trigger").iterdir())) == 2


def test_a_file_that_is_not_whole_yet_is_read_later(part: PartContext) -> None:
    writer = Later()
    requests = WindowRequests(part, 3, writer.run)
    publish(part, request(5), 3)
    path = part.paths.trigger_file(0, 0)
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    for rollout in range(3):
        assert not requests.takes(rollout)
        writer.work()
    path.write_bytes(whole)
    taken = []
    for rollout in range(3, 7):
        if requests.takes(rollout):
            taken.append(rollout)
        writer.work()
    assert taken == [5]


def test_damage_does_not_hide_the_next_one(part: PartContext) -> None:
    writer = Later()
    requests = WindowRequests(part, 3, writer.run)
    publish(part, request(5), 3)
    publish(part, request(6), 3)
    part.paths.trigger_file(0, 0).write_bytes(b'{"rollout": "six"}\n')
    taken = []
    for rollout in range(8):
        if requests.takes(rollout):
            taken.append(rollout)
        with part.guard("trigger"):
            writer.work()
    assert taken == [6]
    ((reason, count),) = lost(part)
    assert (reason.partition(":")[0], count) == ("ValidationError", 1)


def settings_of(out: Path, **profiler: Any) -> dict[str, Any]:
    given = {"activities": ["cpu"], "ranks": "all", "schedule": None, "trigger": {}, **profiler}
    return {"out": str(out), "outputs": {"nvtx": False}, "profiler": given}


def run_rollouts(out: Path, asked: list[int], rollouts: int, **profiler: Any) -> list[str]:
    """Of one process with windows for the rollouts in `asked`; the trace files."""
    torch = pytest.importorskip("torch")
    assert timeline.start(settings_of(out, **profiler), run_id="run", role="actor", rank=0, world_size=1)
    recorder = timeline._recorder
    assert recorder is not None
    for rollout in asked:
        publish(recorder._part, request(rollout), 3)
    for rollout in range(rollouts):
        timeline.set_rollout(rollout)
        with timeline.phase("train_step"):
            torch.ones(2).sum()
        timeline.export_window()
        timeline.flush()
    got = stop(out)
    assert [drop.reason for drop in got.drops] == []
    return sorted(str(p.relative_to(out / "run" / "traces")) for p in (out / "run" / "traces").rglob("*.gz"))


def folders(files: list[str]) -> list[str]:
    return [file.partition("/")[0] for file in files]


def test_a_recorder_opens_the_windows_asked_for(tmp_path: Path) -> None:
    assert folders(run_rollouts(tmp_path, [3, 5], 8)) == ["rollout_000003", "rollout_000005"]


def test_beside_those_of_the_schedule(tmp_path: Path) -> None:
    files = run_rollouts(tmp_path, [4], 6, schedule={"skip_first": 1, "repeat": 1})
    assert folders(files) == ["rollout_000001", "rollout_000004"]


def test_a_window_of_the_schedule_is_recorded_once(tmp_path: Path) -> None:
    files = run_rollouts(tmp_path, [3], 6, schedule={"skip_first": 2, "active": 2, "repeat": 1})
    assert folders(files) == ["rollout_000002"]


def test_a_role_without_windows_looks_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_window_requests, "_read", None)  # would fail
    assert timeline.start(settings_of(tmp_path), run_id="run", role="critic", rank=0, world_size=1)
    for rollout in range(3):
        timeline.set_rollout(rollout)
        timeline.flush()
    timeline.mark("here")
    assert stop(tmp_path).drops == []
