"""slime's own train.py gives its weights to a real SGLang engine behind SGLang's router.

For what is not slime's see this folder's README; here the engine is SGLang's own, on the CPU, and its spans
come from the hooks that our entry point installs in it.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import engines
import pytest
from command_line import run
from merged_trace import events_of
from slime_recordings import bytes_of, recordings, tensors_of
from slime_runs import ROLLOUTS, RUN, Case, Fleet, Places, run_job

pytestmark = [pytest.mark.slime, pytest.mark.sglang, pytest.mark.full, pytest.mark.timeout(3000)]

START_S = 60
INITIAL = "initial"
PROMPT = {
    "input_ids": [5, 17, 29, 41],
    "sampling_params": {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True},
    "return_logprob": True,
}


def ask(url: str, name: str, body: dict[str, Any] | None = None) -> Any:
    """What an engine, or the router, answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/{name}", data, {"Content-Type": "application/json"})
    with opener.open(request, timeout=120) as answer:
        return json.loads(answer.read() or "null")


def says(url: str) -> list[Any]:
    """The likeliest words after a prompt, each with its logarithmic probability."""
    told = ask(url, "generate", PROMPT)
    return [entry[:2] for entry in told["meta_info"]["output_token_logprobs"]]


@contextlib.contextmanager
def router(places: Places, log: Path, environ: dict[str, str]) -> Iterator[int]:
    """The port of SGLang's router, which slime's engine clients make their engines known to."""
    port = engines.free_port()
    command = [
        *(str(places.python), "-m", "sglang_router.launch_router", "--host", "127.0.0.1"),
        *("--port", str(port), "--disable-health-check"),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(engines.free_port())),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        end = time.monotonic() + START_S
        while True:
            assert process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < end, log.read_text()[-4000:]
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                ask(f"http://127.0.0.1:{port}", "workers")
                break
            time.sleep(0.2)
        yield port
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module", params=["distributed", "disk"])
def job(request, tmp_path_factory):
    """The job with the plugin, and what its engine said after it: with what it held, and with files."""
    out = tmp_path_factory.mktemp("slime")
    python = engines.find_python(engines.PINNED)
    engines.install_entry_point(out / "installed")
    told: dict[str, Any] = {}

    @contextlib.contextmanager
    def real(places: Places, _case: Case, model: Path, out: Path, of_job: dict[str, str]) -> Iterator[Fleet]:
        named = {name: value for name, value in of_job.items() if name.startswith("SLIME_PROFILER")}
        environ = engines.engine_environment(
            engines.PINNED,
            out,
            SLIME_PROFILER_ENGINE_INDEX="0",
            SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN="1",
            **named,
        )
        with (
            engines.engine(engines.PINNED, python, model, 1, out / "engine.log", environ) as url,
            router(places, out / "router.log", of_job) as port,
        ):
            yield Fleet(port, [int(url.rpartition(":")[2])])
            told["version"] = ask(url, "model_info")["weight_version"]
            told["held"] = says(url)
            for name, folder in (("saved", out / "saved" / str(ROLLOUTS - 1)), ("first", model)):
                assert ask(url, "update_weights_from_disk", {"model_path": str(folder)})["success"]
                told[name] = says(url)

    case = Case(request.param, qkv_biases=True)
    run_job(case, out, plugin="env", start_engines=real)
    merged = run("merge", out / "runs" / RUN, "--rollout", "all")
    assert merged.exit_code == 0, merged.output
    return SimpleNamespace(case=case, out=out, told=told, records=recordings(out))


def test_the_engine_holds_what_slime_saved(job):
    saved = [
        tensors_of(job.out / "model"),
        *(tensors_of(job.out / "saved" / str(n)) for n in range(ROLLOUTS)),
    ]
    assert all(a != b for a, b in pairwise(saved)), "nothing was trained"
    assert job.told["version"] == str(ROLLOUTS + 1)
    assert job.told["held"] == job.told["saved"] != job.told["first"]


def test_the_engine_records_what_it_receives_beside_the_trainers_sync(job):
    of_engine = job.records["engine", 0]
    assert of_engine.drops == []
    syncs = [phase for phase in job.records["actor", 0].phases if phase.name == "weight_sync"]
    assert [sync.rollout for sync in syncs] == [INITIAL, *range(ROLLOUTS)]
    what = {"distributed": "engine_receive", "disk": "engine_load"}[job.case.transport]
    for sync in syncs:
        parts = [
            phase
            for phase in of_engine.phases
            if (phase.name, phase.weight_version) == (what, sync.weight_version)
        ]
        assert parts
        assert {phase.error for phase in parts} == {None}
        # The driver of a disk sync has the engines load once the trainer's own part has ended.
        assert all(phase.start_ns >= sync.start_ns for phase in parts)
        if what == "engine_receive":
            assert sum(phase.bytes for phase in parts) == bytes_of(job.out / "model")
            assert sum(phase.tensors for phase in parts) == len(tensors_of(job.out / "model"))


def test_arrows_lead_into_the_engine(job):
    what = {"distributed": "bucket_send", "disk": "shard_write"}[job.case.transport]
    for name in (INITIAL, *(f"rollout_{n:06d}" for n in range(ROLLOUTS))):
        events = events_of(job.out / "runs" / RUN / "merged" / f"{name}.trace.json.gz")
        begun, ended = (
            [e for e in events if e["ph"] == ph and e.get("cat") == "weight_sync"] for ph in ("s", "f")
        )
        sends = [e for e in events if e["ph"] == "X" and e["name"] == what]
        assert len(begun) == len(ended) == len(sends) > 0
        (engine,) = {event["pid"] for event in ended}
        (shown,) = [
            e["args"]["name"] for e in events if e.get("name") == "process_name" and e["pid"] == engine
        ]
        assert "engine" in shown
