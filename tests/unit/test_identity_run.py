"""Which run a process belongs to."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from surroundings import TORCHRUN, UNIX_NS, make_proc, make_process, ray_module, surroundings

from slime_profiler_plugin.identity import IdentityError, Surroundings
from slime_profiler_plugin.identity._attempt import find_launch
from slime_profiler_plugin.identity._run import RunId, find_run_id
from slime_profiler_plugin.layout import RunPaths


def run_of(
    here: Surroundings, *, given: str | None = None, role: str | None = None, world_size: int | None = None
) -> RunId:
    return find_run_id(here, given=given, role=role, world_size=world_size, unix_ns=UNIX_NS)


def test_the_variable_goes_before_what_start_was_given() -> None:
    here = surroundings({"SLIME_PROFILER_RUN_ID": "nightly"})
    assert run_of(here, given="other") == RunId("nightly", "environment")
    assert run_of(surroundings(), given="other") == RunId("other", "given")


def test_an_empty_variable_is_no_answer() -> None:
    assert run_of(surroundings({"SLIME_PROFILER_RUN_ID": ""}), given="other").text == "other"


@pytest.mark.parametrize("bad", [" ", "a\nb", "x" * 201, "\x00"])
def test_a_bad_id_is_refused_by_name(bad: str) -> None:
    with pytest.raises(IdentityError, match="SLIME_PROFILER_RUN_ID"):
        run_of(surroundings({"SLIME_PROFILER_RUN_ID": bad}))
    with pytest.raises(IdentityError, match="run_id"):
        run_of(surroundings(), given=bad)


@given(st.text(max_size=300))
def test_any_id_is_refused_or_is_one_folder_under_out(text: str) -> None:
    try:
        run = run_of(surroundings(), given=text)
    except IdentityError:
        return
    root = RunPaths("/out", run.text).root
    assert run.text == text
    assert root.parent == Path("/out")
    assert root.name not in {"", ".", ".."}
    assert len(root.name.encode()) <= 255


@pytest.mark.parametrize(
    ("environ", "modules", "text", "token"),
    [
        ({}, {}, "run-7", "launch:run-7"),
        ({"WORLD_SIZE": "2"}, {}, "run-7", "launch:run-7"),
        ({"SLIME_PROFILER_RUN_ID": "said"}, {}, "said", "launch:run-7"),
        ({"SLIME_PROFILER_LAUNCH": "2nd"}, {}, "run-7", "2nd"),
        ({"SLURM_JOB_ID": "77"}, {}, "slurm-77", "slurm:77::0"),
        ({"RAY_RAYLET_PID": "9"}, {"ray": ray_module()}, "ray-session_1-01000000", "ray:session_1:01000000"),
    ],
)
def test_what_our_launcher_minted_counts_where_no_job_names_the_run(
    environ: dict[str, str], modules: dict[str, Any], text: str, token: str
) -> None:
    here = surroundings({"SLIME_PROFILER_LAUNCHED": "run-7", **environ}, modules=modules)
    assert (run_of(here, role="actor", world_size=2).text, find_launch(here)) == (text, token)


def test_a_ray_worker_does_not_take_the_drivers_for_its_job() -> None:
    here = surroundings({"SLIME_PROFILER_LAUNCHED": "run-7", "RAY_RAYLET_PID": "9"})
    assert find_launch(here) is None
    with pytest.raises(IdentityError, match="SLIME_PROFILER_RUN_ID"):
        run_of(here)


@pytest.mark.parametrize("new", [True, False])
def test_ray_gives_session_and_job_and_goes_before_slurm(new: bool) -> None:
    here = surroundings({"SLURM_JOB_ID": "77", **TORCHRUN}, modules={"ray": ray_module(new=new)})
    assert run_of(here) == RunId("ray-session_1-01000000", "ray")


@pytest.mark.parametrize(
    "ray",
    [
        SimpleNamespace(),  # still being imported
        SimpleNamespace(is_initialized=lambda: False),
        ray_module(None),  # a client, whose node is elsewhere
        ray_module(None, new=False),
    ],
)
def test_a_ray_that_cannot_say_is_passed_over(ray: Any) -> None:
    here = surroundings({"SLURM_JOB_ID": "77"}, modules={"ray": ray})
    assert run_of(here) == RunId("slurm-77", "slurm")


def test_slurm_goes_before_torchrun() -> None:
    assert run_of(surroundings({"SLURM_JOB_ID": "77", **TORCHRUN})) == RunId("slurm-77", "slurm")


def test_an_elastic_id_is_the_run_on_any_number_of_nodes() -> None:
    environ = TORCHRUN | {"TORCHELASTIC_RUN_ID": "job9", "GROUP_WORLD_SIZE": "2", "WORLD_SIZE": "8"}
    assert run_of(surroundings(environ)) == RunId("job9", "torchelastic")


def test_no_elastic_id_takes_master_and_agent(tmp_path: Path) -> None:
    proc = make_proc(tmp_path)
    make_process(proc, 100, parent=1, start=4242, environ={"PATH": "/bin"})
    expected = RunId("torchrun-127.0.0.1-29511-b00tb00t-4242-100", "torchelastic")
    assert run_of(surroundings(TORCHRUN, proc=proc)) == expected


def test_the_agent_is_found_past_a_script_and_from_a_child_of_the_rank(tmp_path: Path) -> None:
    proc = make_proc(tmp_path)
    # An agent inside another torchrun has an id, but not this rank's marks.
    outer = TORCHRUN | {"TORCHELASTIC_ERROR_FILE": "/tmp/outer/error.json"}
    make_process(proc, 100, parent=50, start=4242, environ=outer)
    make_process(proc, 110, parent=100, start=4300, environ=TORCHRUN)  # bash -c python
    make_process(proc, 111, parent=110, start=4301, environ=TORCHRUN)  # the rank
    expected = "torchrun-127.0.0.1-29511-b00tb00t-4242-100"
    assert run_of(surroundings(TORCHRUN, proc=proc, pid=111, parent_pid=110)).text == expected
    assert run_of(surroundings(TORCHRUN, proc=proc, pid=112, parent_pid=111)).text == expected


def test_without_proc_the_parent_is_the_agent() -> None:
    assert run_of(surroundings(TORCHRUN)).text == "torchrun-127.0.0.1-29511--None-100"


@pytest.mark.parametrize(
    "nodes", [{"GROUP_WORLD_SIZE": "2", "WORLD_SIZE": "8"}, {"WORLD_SIZE": "8", "GROUP_WORLD_SIZE": ""}]
)
def test_several_nodes_without_an_id_demand_one_by_name(nodes: dict[str, str]) -> None:
    with pytest.raises(IdentityError, match="SLIME_PROFILER_RUN_ID"):
        run_of(surroundings(TORCHRUN | nodes))


def test_a_process_that_is_alone_mints() -> None:
    expected = RunId("run-20270115T080000Z-0123456789abcdef", "minted")
    assert run_of(surroundings()) == expected
    assert run_of(surroundings({"WORLD_SIZE": "1"}), world_size=1) == expected


def torch_distributed(world_size: int) -> Any:
    return SimpleNamespace(is_initialized=lambda: True, get_world_size=lambda: world_size)


@pytest.mark.parametrize(
    ("here", "world_size"),
    [
        (surroundings({"WORLD_SIZE": "2"}), None),
        (surroundings({"OMPI_COMM_WORLD_SIZE": "2"}), None),
        (surroundings({"RAY_RAYLET_PID": "9"}), None),
        (surroundings(modules={"torch.distributed": torch_distributed(2)}), None),
        (surroundings(), 2),
    ],
)
def test_one_of_several_may_not_mint_unless_it_is_the_driver(
    here: Surroundings, world_size: int | None
) -> None:
    with pytest.raises(IdentityError, match=r"SLIME_PROFILER_RUN_ID .* SLIME_PROFILER_LAUNCH"):
        run_of(here, world_size=world_size)
    assert run_of(here, role="driver", world_size=world_size).origin == "minted"


def test_a_torch_that_has_not_joined_a_group_says_nothing() -> None:
    modules = {"torch.distributed": SimpleNamespace(is_initialized=lambda: False)}
    assert run_of(surroundings(modules=modules)).origin == "minted"
