"""Scalars of a run in TensorBoard's own Scalars tab: what it answers there is what the report says."""

from __future__ import annotations

import json

import pytest
from command_line import run as call
from tensorboard_server import run_tensorboard

from slime_profiler_plugin.testing import ProcessFile, write_synthetic_run

pytest.importorskip("duckdb")

pytestmark = pytest.mark.timeout(600)
PLUGIN = {"plugin": "scalars"}


def report(run, logs, view):
    done = call("report", run, "--view", view, "--format", "json", "--tensorboard", logs)
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)["views"][view]["rows"]
    return {int(row["rollout"]): row for row in rows if row["rollout"] != "initial"}, done.stderr


def write_attempt(out, attempt, rollouts, length_ms):
    process = ProcessFile("again", pid=7 + attempt, role="actor", rank=0, attempt=attempt)
    for number in rollouts:
        begin = (attempt * 100 + number) * 10**9
        process.phase("train_step", begin, begin + length_ms * 10**6, rollout=number)
    process.end(10**12)
    return process.write(out).parents[2]


# With and without the data server, which is a reader of its own.
@pytest.mark.parametrize("load_fast", ["false", "auto"])
def test_scalars_stand_in_their_tab_and_follow_a_run_that_grows(tmp_path, monkeypatch, load_fast):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    logs = tmp_path / "logs"
    run = write_synthetic_run(tmp_path / "runs", rollouts=2).folder
    report(run, logs, "sync")
    with run_tensorboard(logs, tmp_path, options=("--load_fast", load_fast)) as server:
        for rollouts in (2, 4):
            write_synthetic_run(tmp_path / "runs", rollouts=rollouts)
            syncs, _ = report(run, logs, "sync")
            assert sorted(syncs) == list(range(rollouts))
            for name in ("wall_ms", "exposed_ms", "send_ms"):
                points = server.wait_for(
                    lambda answer, wanted=rollouts: len(answer) == wanted,
                    "scalars",
                    run=run.name,
                    tag=f"sync/{name}",
                    **PLUGIN,
                )
                shown = {step: value for _, step, value in points}
                assert shown == pytest.approx({step: row[name] for step, row in syncs.items()})
        assert "0 values added" in report(run, logs, "sync")[1]
        # A later attempt takes up at rollout 1; what was there from it on is gone.
        again = write_attempt(tmp_path / "runs", 0, range(3), 100)
        about = {"run": again.name, "tag": "rollout/wall_ms", **PLUGIN}
        report(again, logs, "rollout")
        server.wait_for(lambda answer: len(answer) == 3, "scalars", **about)
        write_attempt(tmp_path / "runs", 1, range(1, 2), 7)
        report(again, logs, "rollout")
        shown = server.wait_for(lambda answer: len(answer) == 2, "scalars", **about)
        assert [(step, value) for _, step, value in shown] == [(0, 100), (1, 7)]
        tags = server.ask("tags", **PLUGIN)[run.name]
        assert {"rollout/wall_ms", "rollout/idle_ms", "sync/bytes", "sync/gb_s"} <= set(tags)
        assert "host clock" in tags["rollout/wall_ms"]["description"]
