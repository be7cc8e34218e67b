"""The hooks for expert parallelism in worlds of 2, 3, 5 and 6 ranks, whose number and groups change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from recordings import environment, read_file, record_files

from slime_profiler_plugin.attach.expert_parallel import ranges

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(240)

HERE = Path(__file__).resolve().parent
WORLDS = {
    "2 then 3": ([[0, 1]], [[0, 2], [1]]),
    "3 then 2": ([[0, 2], [1]], [[0], [1]]),
    "5 then 6": ([[0, 1, 2], [3, 4]], [[0], [1, 2], [3, 4, 5]]),
    "6 then 5": ([[0, 2, 4, 5], [1, 3]], [[4, 0], [1, 2, 3]]),
}
STAGES = ["ep_dispatch", "ep_combine", "ep_gather", *["ep_dispatch"] * 2, *["weight_convert"] * 3]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worlds")
    for plugin in ("on", "off"):
        (folder / plugin).mkdir()
        done = subprocess.run(
            [sys.executable, str(HERE / "expert_world.py"), str(folder / plugin), plugin],
            env=environment(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"),
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("world", WORLDS)
def test_every_call_names_its_group(out: Path, world: str) -> None:
    seen = set()
    for file in record_files(out / "on" / world):
        lines = read_file(file)
        (rank,) = {line.rank for line in lines if type(line).__name__ == "Process"}
        phases = [line for line in lines if type(line).__name__ == "Phase"]
        for rollout, groups in enumerate(WORLDS[world]):
            if rank >= sum(map(len, groups)):
                assert not [phase for phase in phases if phase.rollout == rollout]
                continue
            seen.add((rollout, rank))
            (ranks,) = (group for group in groups if rank in group)
            of_rollout = sorted((p for p in phases if p.rollout == rollout), key=lambda phase: phase.id)
            assert [phase.name for phase in of_rollout] == STAGES
            for phase in of_rollout:
                assert phase.attrs is not None
                # new_group sorts the ranks it is given
                assert phase.attrs["ep_size"] == len(ranks)
                assert phase.attrs["ep_rank"] == sorted(ranks).index(rank)
                assert phase.attrs["ep_ranks"] == ranges(sorted(ranks))
            names = {phase.id: phase.name for phase in phases}
            assert [names.get(phase.parent) for phase in of_rollout[3:5]] == ["ep_gather"] * 2
            assert of_rollout[0].bytes == 16
            assert (of_rollout[2].bytes, of_rollout[2].tensors) == (24, 2)
    assert len(seen) == sum(len(group) for groups in WORLDS[world] for group in groups)


@pytest.mark.parametrize("world", WORLDS)
def test_results_and_collectives_are_those_without(out: Path, world: str) -> None:
    told = sorted((out / "on" / world).glob("*.json"))
    assert len(told) == max(sum(map(len, groups)) for groups in WORLDS[world])
    for file in told:
        with_it, without = (
            json.loads((out / plugin / world / file.name).read_text()) for plugin in ("on", "off")
        )
        assert with_it == without
        assert with_it["collectives"]
