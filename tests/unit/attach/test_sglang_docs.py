"""The examples of docs/sglang.md, as far as they run without SGLang."""

from __future__ import annotations

import os
import re

import pytest
from recordings import ROOT, Recording, read_file, record_files
from test_sglang_windows import Endpoint

from slime_profiler_plugin import timeline
from slime_profiler_plugin.config import load_config

PAGE = (ROOT / "docs" / "sglang.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture(autouse=True)
def _no_switch(monkeypatch):
    for name in [name for name in os.environ if name.startswith("SLIME_")]:
        monkeypatch.delenv(name)


def test_the_trainers_side(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLIME_COMMUNICATION_TIMELINE", "1")
    monkeypatch.setenv("SLIME_PROFILER_RUN_ID", "my-run")
    exec(blocks("python")[0], {})
    timeline.stop()
    (file,) = record_files(tmp_path / "runs")
    told = [(p.name, p.bucket, p.weight_version, p.attrs) for p in Recording(read_file(file)).phases]
    group = {"group": "weights"}
    assert told == [
        ("bucket_send", 0, "1", group),
        ("bucket_send", 1, "1", group),
        ("weight_sync", None, "1", {}),
    ]


def test_windows(tmp_path, monkeypatch):
    config = tmp_path / "config.yaml"
    config.write_text(blocks("yaml")[0].replace("/shared/runs", str(tmp_path)))
    monkeypatch.setenv("SLIME_PROFILER", str(config))
    monkeypatch.setenv("SLIME_PROFILER_RUN_ID", "my-run")
    engine, other = Endpoint(), Endpoint()
    try:
        exec(blocks("python")[1], {"URLS": [engine.url, other.url]})
    finally:
        for endpoint in (engine, other):
            endpoint.shutdown()
            endpoint.server_close()
    assert [path for path, _ in engine.asked] == ["/start_profile", "/stop_profile"]
    assert engine.asked[0][1]["profile_id"] == "slime_profiler-rollout_000002-engine_0000"
    assert other.asked == []


def test_switches_are_ours():
    environ = dict(re.findall(r"^export (\w+)=(\S+)", blocks("sh")[0], re.M))
    config = load_config(None, environ)
    assert config is not None
    assert config.out == environ["SLIME_PROFILER_OUT"]
