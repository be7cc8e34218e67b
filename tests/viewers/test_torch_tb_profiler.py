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

pytestmark = pytest.mark.timeout(300)
ROUTE = "data/plugin/pytorch_profiler/"
CONFIG = """
outputs: {records: true}
profiler:
  schedule: {skip_first: 0, wait: 0, warmup: 1, active: 1, repeat: 2}
  ranks: all
  roles: [actor]
  activities: [cpu]
"""


def test_the_ranks_of_a_rollout_are_workers_of_one_run(tmp_path):
    config, out = tmp_path / "windows.yaml", tmp_path / "runs"
    config.write_text(CONFIG)
    environment = shared_environment(out, str(config))
    run_bare(Settings(rollouts=4, engines=1), ProcessSetup(environment=environment))
    with run_tensorboard(out, tmp_path) as server:
        found = server.wait_for(
            lambda answer: not answer["loading"] and len(answer["runs"]) == 2, f"{ROUTE}runs"
        )
        folder = f"{environment[RUN_ID_VARIABLE]}/traces"
        assert found["runs"] == [f"{folder}/rollout_000001", f"{folder}/rollout_000003"]
        for run in found["runs"]:
            views = server.ask(f"{ROUTE}views", run=run)
            assert {"Overview", "Operator", "Trace", "Distributed"} <= set(views)
            workers = server.ask(f"{ROUTE}workers", run=run, view="Overview")
            assert sorted(set(workers) - {"All"}) == ["actor-0", "actor-1"]
            for worker in ("actor-0", "actor-1"):
                assert server.ask(f"{ROUTE}spans", run=run, worker=worker) == ["1"]
                told = server.ask(f"{ROUTE}overview", run=run, worker=worker, span="1", view="Overview")
                assert told
