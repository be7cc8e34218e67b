"""With the profiler off, the demo's training loop does nothing because of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("torch")

SCRIPT = textwrap.dedent(
    """
    import json, os, sys, threading

    opened, threads = [], []

    def watch(event, arguments):
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            opened.append(os.fsdecode(arguments[0]))
        elif event == "_thread.start_new_thread":
            threads.append(repr(arguments[0]))

    from slime_profiler_plugin._timeline import timeline
    from slime_profiler_plugin.demo import Settings
    from slime_profiler_plugin.demo._bare import NoLock, synthetic_samples
    from slime_profiler_plugin.demo._group import host_store
    from slime_profiler_plugin.demo.trainer import Trainer, train_loop

    sys.addaudithook(watch)
    started = timeline.start(role="actor", rank=0)
    settings = Settings(trainers=1, engines=0, rollouts=3)
    trainer = Trainer(settings, 0, NoLock())
    trainer.join(host_store())
    seen = []

    def done(train, sync):
        seen.append(
            {
                "rollout": train.rollout,
                "opened": list(opened),
                "threads": list(threads),
                "tasks": len(os.listdir("/proc/self/task")),
                "files": len(os.listdir("/proc/self/fd")),
            }
        )
        opened.clear()

    train_loop(trainer, [], range(settings.rollouts), lambda r: synthetic_samples(settings, r, 0), done)
    trainer.close()
    timeline.stop()
    ours = "slime_profiler_plugin.record"
    loaded = [n for n in sys.modules if n.split(".")[0] == "nvtx" or n.startswith(ours)]
    print(json.dumps({"started": started, "loaded": loaded, "rollouts": seen}))
    """
)


@pytest.fixture(scope="module", params=[{}, {"SLIME_PROFILER": "off", "SLIME_COMMUNICATION_TIMELINE": "1"}])
def off(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("off")
    environment = {n: v for n, v in os.environ.items() if not n.startswith("SLIME_")} | request.param
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([os.getcwd(), environment.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    return json.loads(done.stdout)


def test_it_is_off(off):
    assert off["started"] is False


def test_neither_nvtx_nor_the_recorder_is_imported(off):
    assert off["loaded"] == []


def test_no_file_is_opened(off):
    first, *later = off["rollouts"]
    assert [r["rollout"] for r in off["rollouts"]] == [0, 1, 2]
    # The first rollout is torch's, which imports modules of its own at the first step.
    assert [r["opened"] for r in later] == [[], []]
    assert {r["files"] for r in off["rollouts"]} == {first["files"]}


def test_no_thread_is_started(off):
    first = off["rollouts"][0]
    assert [r["threads"] for r in off["rollouts"]] == [[], [], []]
    assert {r["tasks"] for r in off["rollouts"]} == {first["tasks"]}
