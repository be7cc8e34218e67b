"""Real Megatron-Core on two ranks: what is recorded, and that nothing else is different.

Each case runs without the plugin, with `instrument`, and with `register`, as the autoload does.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from megatron_runs import outline, recordings, told, train
from sequences import SEQUENCES

from slime_profiler_plugin.attach.megatron import TARGETS
from slime_profiler_plugin.attach.megatron._names import TIMERS
from slime_profiler_plugin.phases import BUILT_IN

pytestmark = [pytest.mark.megatron, pytest.mark.timeout(300)]

CASES: dict[str, dict[str, Any]] = {
    "dp2": {},
    "tp2": {"tp": 2},
    "pp2": {"pp": 2},
    "vpp2": {"pp": 2, "vpp": 2},
    "distributed": {"dist_opt": True},
    "overlapped": {"dist_opt": True, "overlap": True},
    "bf16": {"bf16": True},
    "ep2": {"moe": True, "ep": 2},
}
MODES = ("off", "instrument", "register")
#: What is wrapped, of all that every version has.
FUNCTIONS = [(target.module, target.name) for target in TARGETS if not target.optional]
#: Of what a rank tells: all but what the plugin is.
RESULTS = ("losses", "gradients", "parameters", "collectives")


def run(out: Path, names: list[str]) -> Path:
    train(
        out,
        *(
            {"name": f"{name}-{mode}", "plugin": mode, "targets": FUNCTIONS, **CASES[name]}
            for name in names
            for mode in MODES
        ),
        *(
            {"name": f"{name}-own-{mode}", "plugin": mode, "own_timers": True, **CASES[name]}
            for name in names
            for mode in MODES[:2]
        ),
    )
    return out


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("megatron"), ["overlapped"])


@pytest.fixture(scope="module")
def all_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("megatron"), [name for name in CASES if name != "overlapped"])


def check(out: Path, name: str) -> None:
    for mode in MODES[1:]:
        check_outline(out, name, mode)
        check_same(out, name, mode)
    check_off(out, name)
    check_own_timers(out, name)


def check_outline(out: Path, name: str, mode: str) -> None:
    found = recordings(out, f"{name}-{mode}")
    assert sorted(found) == [0, 1]
    for rank, recording in found.items():
        assert outline(recording) == "".join(SEQUENCES[name][rank]).splitlines(), (name, mode, rank)
        assert not recording.drops
        assert all(phase.error is None for phase in recording.phases)
        names = {phase.id: phase.name for phase in recording.phases}
        for phase in recording.phases:  # where the vocabulary says they may stand
            allowed = BUILT_IN[phase.name].parents
            assert phase.parent is None or names[phase.parent] in allowed, phase


def check_same(out: Path, name: str, mode: str) -> None:
    for rank in (0, 1):
        without, with_it = (told(out, f"{name}-{one}", rank) for one in ("off", mode))
        assert without["losses"], "the run did nothing"
        assert without["collectives"], "no collective was seen"
        for result in RESULTS:
            assert with_it[result] == without[result], (name, mode, rank, result)


def check_off(out: Path, name: str) -> None:
    check_nothing_of_ours(out, f"{name}-off")
    for rank in (0, 1):
        # for the length of a call only, where the program did not ask
        assert told(out, f"{name}-register", rank)["config"] == ["NoneType", "function"]
        assert told(out, f"{name}-instrument", rank)["config"] == ["Timers", "Finalize"]
        for mode in MODES[1:]:
            patched = told(out, f"{name}-{mode}", rank)["patched"]
            assert patched == [function for _, function in FUNCTIONS]


def check_nothing_of_ours(out: Path, case: str) -> None:
    for rank in (0, 1):
        off = told(out, case, rank)
        assert off["imported"] == []
        assert off["patched"] == []
        assert off["threads"] == ["MainThread"]
        assert off["config"] == ["NoneType", "function"]
    assert sorted(path.name for path in (out / case).iterdir()) == ["rank0.json", "rank1.json", "store"]


def check_own_timers(out: Path, name: str) -> None:
    """A program's own timers get the same calls, and the phases are what those say."""
    found = recordings(out, f"{name}-own-instrument")
    for rank in (0, 1):
        without, with_it = (told(out, f"{name}-own-{mode}", rank) for mode in ("off", "instrument"))
        assert with_it["timers"] == without["timers"]
        assert with_it["losses"] == without["losses"]
        started = Counter(TIMERS[call.strip("+!")].phase for call in without["timers"] if call[0] == "+")
        recorded = Counter(phase.name for phase in found[rank].phases)
        assert started
        assert {phase: recorded[phase] for phase in started} == started


def test_phases_results_and_collectives(one_run: Path) -> None:
    check(one_run, "overlapped")


def test_without_a_switch_our_folder_does_nothing(one_run: Path, tmp_path: Path) -> None:
    case = {"name": "off", "plugin": "off", "targets": FUNCTIONS, **CASES["overlapped"]}
    train(tmp_path, case, autoload=True)
    check_nothing_of_ours(tmp_path, "off")
    assert [path.name for path in tmp_path.iterdir()] == ["off"]
    for rank in (0, 1):
        absent, present = told(one_run, "overlapped-off", rank), told(tmp_path, "off", rank)
        assert all(present[result] == absent[result] for result in RESULTS)


def test_ranks_and_sizes(one_run: Path) -> None:
    for rank, recording in recordings(one_run, "overlapped-instrument").items():
        (identity,) = [line for line in recording.lines if type(line).__name__ == "Identity"]
        assert identity.ranks == {"tp": 0, "pp": 0, "dp": rank, "cp": 0, "ep": 0}
        assert identity.world_size == 2
        sent = [phase for phase in recording.phases if phase.name == "grad_sync_start"]
        assert [(phase.bytes, phase.tensors) for phase in sent[:2]] == [(17920, 12), (13312, 8)]


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in CASES if name != "overlapped"])
def test_whole_matrix(all_runs: Path, name: str) -> None:
    check(all_runs, name)


@pytest.mark.full
def test_experts(all_runs: Path) -> None:
    for rank, recording in recordings(all_runs, "ep2-register").items():
        dispatched = [phase for phase in recording.phases if phase.name == "ep_dispatch"]
        assert len(dispatched) == 8
        for phase in dispatched:
            assert phase.attrs == {"ep_size": 2, "ep_rank": rank, "ep_ranks": "0,1"}
            assert phase.bytes
