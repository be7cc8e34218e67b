from __future__ import annotations

from pathlib import Path

import pytest

from slime_profiler_plugin.config import ConfigError
from slime_profiler_plugin.demo import DemoError, Settings, run_demo
from slime_profiler_plugin.demo._loop import RolloutResult
from slime_profiler_plugin.demo._probe import Probe
from slime_profiler_plugin.demo._proof import prove
from slime_profiler_plugin.demo.driver import describe
from slime_profiler_plugin.demo.sync import SyncReport

SYNC = SyncReport(
    sync=4, source="actor-0@1-2", weight_version="5", transport="nccl", buckets=3, bytes=1_000_000
)
HALF = SyncReport(
    sync=4, source="actor-1@3-4", weight_version="5", transport="nccl", buckets=3, bytes=500_000
)
SUMS = {"head": "aa", "norm": "bb"}
OLD = Probe(tokens=[[9, 9]], logits=[[0.0, 1.0]], checksums=SUMS)
NEW = Probe(tokens=[[1, 2]], logits=[[0.5, -1.0]], checksums=SUMS)
MOVED_LESS = Probe(tokens=[[1, 2]], logits=[[0.25, 1.0]], checksums=SUMS)
OTHER = Probe(tokens=[[1, 2]], logits=[[0.5, -1.0]], checksums={**SUMS, "norm": "bc"})
LESS = Probe(tokens=[[1, 2]], logits=[[0.5, -1.0]], checksums={"head": "aa"})


def test_equal_tokens_and_moved_logits_are_a_proof():
    proof = prove([SYNC], 1_000_000, [OLD, OLD], [NEW, MOVED_LESS], [NEW, NEW, NEW])
    assert (proof.models, proof.tensors, proof.tokens, proof.logit_change) == (5, 2, 2, 0.25)


@pytest.mark.parametrize(
    ("size", "before", "after", "trainers", "told"),
    [
        (999, [OLD], [NEW], [NEW], "sync 4 sent 1000000 bytes of a model of 999"),
        (
            1_000_000,
            [OLD, OLD],
            [NEW, OTHER],
            [NEW],
            "sync 4 engine 1 has other weights than trainer 0 in 1 tensors, norm first",
        ),
        (1_000_000, [OLD], [LESS], [NEW], "engine 0 has other weights than trainer 0 in 1 tensors, norm"),
        (1_000_000, [OLD], [NEW], [NEW, OTHER], "after sync 4 trainer 1 has other weights than trainer 0"),
        (1_000_000, [OLD, OLD], [NEW, OLD], [NEW], "after sync 4 engine 1 draws other tokens than trainer 0"),
        (1_000_000, [OLD], [NEW], [NEW, OLD], "after sync 4 trainer 1 draws other tokens than trainer 0"),
        (1_000_000, [OLD, NEW], [NEW, NEW], [NEW], "sync 4 changed no logit of engine 1"),
    ],
)
def test_anything_else_is_an_error(size, before, after, trainers, told):
    with pytest.raises(DemoError, match=told):
        prove([SYNC], size, before, after, trainers)


def test_each_turn_is_told_in_one_line():
    proof = prove([HALF, HALF], 1_000_000, [OLD], [NEW], [NEW])
    told = [
        describe(RolloutResult(rollout="initial", proof=proof)),
        describe(RolloutResult(rollout=3, mean_reward=0.25, losses=[0.1, 0.2], proof=proof)),
        describe(RolloutResult(rollout=4, mean_reward=-0.5, losses=[0.1], restarted=["engine 1"])),
    ]
    rest = "sync 4 sent 1,000,000 bytes in 6 buckets; proved: 2 tensors and 2 tokens equal in 2 models"
    assert told == [
        f"initial: {rest}",
        f"rollout 3: mean reward +0.250, 2 steps; {rest}",
        "rollout 4: mean reward -0.500, 1 steps; engine 1 died and came back; no weight sync",
    ]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"transport": "ipc"}, "handed 500,000 bytes in 3 buckets to each of 2 engines"),
        (
            {"transport": "disk", "file_bytes": 500_100},
            "wrote 1,000,000 bytes into 6 files of 1,000,200 bytes",
        ),
        (
            {"transport": "disk_delta", "file_bytes": 4_000, "baseline": True},
            "published 1,000,000 bytes whole in 6 files of 8,000 bytes",
        ),
        (
            {"transport": "disk_delta", "file_bytes": 4_000},
            "published 1,000,000 bytes as differences in 6 files of 8,000 bytes",
        ),
    ],
)
def test_what_travelled_is_told_by_transport(fields, told):
    half = SyncReport(sync=4, source=None, weight_version="5", buckets=3, bytes=500_000, **fields)
    size = 500_000 if half.transport == "ipc" else 1_000_000
    proof = prove([half, half], size, [OLD, OLD], [NEW, NEW], [NEW])
    assert describe(RolloutResult(rollout="initial", proof=proof)).startswith(
        f"initial: sync 4 {told}; proved"
    )


def test_what_is_not_installed_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "ray" else object())
    with pytest.raises(DemoError, match=r"the demo needs ray: pip install 'slime-profiler-plugin\[demo\]'"):
        run_demo(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"settings": Settings(engines=0)}, ValueError, "engines is 0: at least 1"),
        ({"config": "tmeline"}, ConfigError, "tmeline"),
        ({"config": "./quiet.yaml"}, ValueError, "outputs.records is off"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_starts(
    tmp_path, monkeypatch, options, error, told
):
    monkeypatch.chdir(tmp_path)
    Path("quiet.yaml").write_text("outputs: {records: false}\n")
    lines: list[str] = []
    with pytest.raises(error, match=told):
        run_demo(tmp_path / "runs", report=lines.append, **options)
    assert lines == []
    assert [path.name for path in tmp_path.iterdir()] == ["quiet.yaml"]


def test_a_folder_that_cannot_be_written_is_refused_before_ray_starts(tmp_path, monkeypatch, caplog):
    pytest.importorskip("torch")
    pytest.importorskip("ray")
    monkeypatch.setattr("slime_profiler_plugin.demo.driver.own_cluster", None)  # calling it would be noticed
    file = tmp_path / "file"
    file.write_text("no folder")
    with pytest.raises(DemoError, match=f"nothing can be recorded below {file}"):
        run_demo(file)
    assert "stays off" in caplog.text


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"rollouts": 0}, "rollouts is 0: at least 1"),
        ({"update_weights_interval": 0}, "update_weights_interval is 0: at least 1"),
        ({"restart_engine": 2}, "restart_engine is 2: there are 2, counted from 0"),
        ({"restart_rank": -1}, "restart_rank is -1: there are 2, counted from 0"),
        ({"restart_rank": 0, "trainers": 1}, "restart_rank with 1 trainer: no rank lives on"),
        ({"micro_batches": 0}, "micro_batches is 0: at least 1"),
        ({"transport": "ipc", "engines": 3}, "3 engines for 2 trainers"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, told):
    with pytest.raises(ValueError, match=told):
        Settings(**settings)
