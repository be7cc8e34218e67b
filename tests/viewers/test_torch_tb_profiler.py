"""torch-tb-profiler lists the profiler windows of a rollout as workers of one run (asked over HTTP: offline
its page does not work)."""

from __future__ import annotations

import pytest
from tensorboard_server import run_tensorboard

pytest.importorskip("torch")
pytest.importorskip("torch_tb_profiler")

from slime_profiler_plugin.demo import ProcessSetup, Settings, run_bare
from slime_profiler_plugin.demo.driver import shared_environment
from slime_profiler_plugin.identity import RUN_ID_VARIABLE

pytestmark = pytest.mark.timeout(600)
PLUGIN = {"plugin": "pytorch_profiler"}
CONFIG = """
outputs: {records: true}
profiler:
  schedule: {skip_first: 0, wait: 0, warmup: 1, active: 1, repeat: 1}
  ranks: all
  roles: [actor]
  activities: [cpu]
"""


def test_the_ranks_of_a_rollout_are_workers_of_one_run(tmp_path):
    config, out = tmp_path / "windows.yaml", tmp_path / "runs"
    config.write_text(CONFIG)
    environment = shared_environment(out, str(config))
    run_bare(Settings(rollouts=2, engines=1), ProcessSetup(environment=environment))
    run = f"{environment[RUN_ID_VARIABLE]}/traces/rollout_000001"
    with run_tensorboard(out, tmp_path) as server:
        found = server.wait_for(lambda answer: not answer["loading"] and answer["runs"], "runs", **PLUGIN)
        assert found["runs"] == [run]
        # Rank 0 alone sends weights. For ranks that communicate differently there is no view `Distributed`.
        assert {"Overview", "Operator", "Trace"} <= set(server.ask("views", run=run, **PLUGIN))
        workers = server.ask("workers", run=run, view="Overview", **PLUGIN)
        assert sorted(workers) == ["actor-0", "actor-1"]
        for worker in workers:
            (span,) = server.ask("spans", run=run, worker=worker, **PLUGIN)
            about = {"run": run, "worker": worker, "span": span}
            assert server.ask("overview", view="Overview", **about, **PLUGIN)["steps"]["rows"]
