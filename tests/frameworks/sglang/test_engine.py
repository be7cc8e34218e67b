"""A real SGLang engine on this machine's CPU, with a trainer that gives it weights in every way.

What a CPU cannot show: nccl, CUDA IPC, device events of the engine.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import engines
import pytest
from command_line import run
from merged_trace import events_of
from recordings import Recording, read_file, record_files

from slime_profiler_plugin import schema

pytestmark = [pytest.mark.sglang, pytest.mark.full, pytest.mark.timeout(1800)]

RUN = "engines"
TENSORS = 27
#: Of the models, at one rank.
BYTES = 279_680


CASES = [(edition, size) for edition in (engines.PINNED, engines.NEWEST) for size in (1, 2)]


@pytest.fixture(scope="module", params=CASES, ids=[f"{edition.version}-TP{size}" for edition, size in CASES])
def seen(request, tmp_path_factory, models):
    """What trainer and engine did, recorded and merged."""
    edition, size = request.param
    python = engines.find_python(edition)
    folder = tmp_path_factory.mktemp("sglang")
    engines.install_entry_point(folder / "installed")
    config = folder / "config.yaml"
    config.write_text(engines.CONFIG.format(out=folder / "runs"))
    environ = engines.engine_environment(
        edition,
        folder,
        SLIME_PROFILER=str(config),
        SLIME_PROFILER_RUN_ID=RUN,
        SLIME_PROFILER_LAUNCH="once",
        SLIME_PROFILER_ENGINE_INDEX="0",
    )
    shutil.copytree(models(python), folder, dirs_exist_ok=True)
    sessions = ["--has-sessions"] if edition.has_sessions else []
    with engines.engine(edition, python, folder / "a", size, folder / "engine.log", environ) as url:
        numbers = ("--size", str(size), "--port", str(engines.free_port()))
        told = engines.run_trainer(
            python, folder, environ, "trainer.py", url, str(folder), *numbers, *sessions
        )
    merged = run("merge", folder / "runs" / RUN, "--rollout", "all")
    assert merged.exit_code == 0, merged.output
    return SimpleNamespace(size=size, folder=folder, run=folder / "runs" / RUN, told=told)


def recordings(seen: Any, role: str) -> list[Recording]:
    """Of the processes of a role, by rank."""
    found = [Recording(read_file(path)) for path in record_files(seen.folder / "runs")]
    chosen = [recording for recording in found if recording.lines[0].role == role]
    assert len(chosen) == (seen.size if role == "engine" else 1)
    return sorted(chosen, key=lambda recording: recording.lines[0].rank)


def merged_events(seen: Any, rollout: int) -> list[dict[str, Any]]:
    return events_of(seen.run / "merged" / f"rollout_{rollout:06d}.trace.json.gz")


def test_weights_arrive_and_the_engine_answers_as_before(seen):
    told = seen.told
    first, other = told["first"][0], told["after distributed"][0]
    assert first != other
    assert [told[f"after {way}"][0] for way in ("tensor", "bucket", "disk")] == [first, other, first]
    assert [told[f"after {way}"][1] for way in ("distributed", "tensor", "bucket", "disk")] == list("1234")
    answers = [*told["distributed"], told["tensor"], told["bucket"], told["disk"], told["connect"]]
    assert {status for status, _ in answers} == {200}
    assert told["flush"] == 200


def test_every_rank_of_the_engine_says_who_it_is(seen):
    places = [recording.lines[0] for recording in recordings(seen, "engine")]
    assert [place.rank for place in places] == list(range(seen.size))
    assert [place.ranks["tp"] for place in places] == list(range(seen.size))
    assert {place.world_size for place in places} == {seen.size}
    assert {place.engine["index"] for place in places} == {0}
    assert len({place.attempt for place in places}) == 1


def test_every_rank_receives_loads_and_flushes(seen):
    for recording in recordings(seen, "engine"):
        phases = sorted(recording.phases, key=lambda phase: phase.start_ns)
        told = [
            (phase.name.removeprefix("engine_"), phase.transport, phase.weight_version, phase.bucket)
            for phase in phases
            if phase.name != "profiler_export" and phase.transport is not None
        ]
        bucket = ("receive", "load", "flush")
        assert told == [
            *((name, "nccl", "1", 0) for name in bucket),
            *((name, "nccl", "1", 1) for name in bucket),
            *((name, "ipc", "2", 0) for name in bucket),
            *((name, "ipc", "3", 0) for name in bucket),
            *((name, "disk", "4", None) for name in ("load", "flush")),
        ]
        received = [phase for phase in phases if phase.name == "engine_receive"]
        assert sum(phase.tensors for phase in received) == 3 * TENSORS
        assert sum(phase.bytes for phase in received) == 3 * BYTES
        assert {phase.attrs.get("group") for phase in received[:2]} == {"slime-pp_0"}
        assert all(a.start_ns + a.dur_ns <= b.start_ns for a, b in pairwise(phases))
        assert {phase.error for phase in phases} == {None}
        assert recording.drops == []


def test_engine_works_while_the_trainer_syncs(seen):
    """Not strictly within: the answer of rank 0 is all that the trainer waits for."""
    (trainer,) = recordings(seen, "actor")
    domain = trainer.lines[0].clock_domain
    syncs = {phase.weight_version: phase for phase in trainer.phases if phase.name == "weight_sync"}
    for recording in recordings(seen, "engine"):
        assert recording.lines[0].clock_domain == domain
        for phase in recording.phases:
            if phase.weight_version in syncs:
                sync = syncs[phase.weight_version]
                assert sync.start_ns < phase.start_ns < sync.start_ns + sync.dur_ns


def test_arrows_lead_from_each_bucket_to_every_rank(seen):
    arrows = {}
    for rollout in range(4):
        names = Counter(
            event["name"]
            for event in merged_events(seen, rollout)
            if event["ph"] == "f" and event.get("cat") == "weight_sync"
        )
        arrows[rollout] = dict(names)
    size = seen.size
    assert arrows == {0: {"bucket": 2 * size}, 1: {"bucket": size}, 2: {"bucket": size}, 3: {"shard": size}}


def test_a_window_of_every_rank_lies_in_its_rollouts_folder(seen):
    files = sorted((seen.run / "traces").rglob("*"))
    windows = [path for path in files if path.is_file()]
    assert [path.parent.name for path in windows] == ["rollout_000002"] * seen.size
    assert [path.name.split(".")[0] for path in windows] == [f"engine-{rank}" for rank in range(seen.size)]
    for rank, path in enumerate(windows):
        about = read_trace(path)
        assert about["slime_profiler"]["rank"] == rank
        assert about["slime_profiler"]["run_id"] == RUN
        assert about["slime_profiler_rollouts"] == [2]
        assert "with_stack" not in about
        steps = [event for event in about["traceEvents"] if event.get("name", "").startswith("step[")]
        assert 1 <= len(steps) <= 10
    shown = [event for event in merged_events(seen, 2) if event.get("name", "").startswith("step[")]
    assert shown


def test_the_engine_is_well_while_a_window_runs_and_ends(seen):
    health = seen.told["health"]
    assert set(health["statuses"]) == {200}
    exports = [p for r in recordings(seen, "engine") for p in r.phases if p.name == "profiler_export"]
    assert len(exports) == seen.size
    # It ended by itself, within the rollout: before the sync that follows what was generated.
    for recording in recordings(seen, "engine"):
        (export,) = [phase for phase in recording.phases if phase.name == "profiler_export"]
        third = next(phase for phase in recording.phases if phase.weight_version == "3")
        assert export.start_ns + export.dur_ns <= third.start_ns


def test_nothing_but_schedulers_and_the_trainer_records(seen):
    roles = Counter(
        line.role
        for path in record_files(seen.folder / "runs")
        for line in Recording(read_file(path)).all(schema.Process)
    )
    assert roles == {"engine": seen.size, "actor": 1}


def read_trace(path: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return told
