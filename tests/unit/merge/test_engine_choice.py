"""What is said when the roles, ranks or rollouts that were asked for are not all there."""

import command_line
import pytest
from traces import merge, names, op, write_trace

from slime_profiler_plugin.merge import MergeError, MergeOptions, merge_run, parse_options
from slime_profiler_plugin.testing import write_synthetic_run


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ({"roles": "judge"}, "no process is of role judge; there are: actor, driver, engine"),
        ({"roles": "rank"}, "no process is of role rank; there are: actor, driver, engine"),
        ({"ranks": "7-9"}, "no process is of rank 7 to 9; there are: 0 to 1"),
        ({"roles": "actor", "ranks": "5"}, "no process is of rank 5 and role actor; there are: 0 to 1"),
    ],
)
def test_a_choice_that_nobody_of_a_run_meets(tmp_path, choice, reason):
    made = write_synthetic_run(tmp_path)
    with pytest.raises(MergeError) as error:
        merge_run([made.folder], options=parse_options(jobs=1, **choice))
    assert str(error.value) == f"run synthetic: {reason}"
    assert not (made.folder / "merged").exists()


def test_a_role_that_nobody_has_beside_one_that_is_there(tmp_path):
    made = write_synthetic_run(tmp_path)
    report = merge_run([made.folder], options=parse_options(jobs=1, roles="actor,judge"))
    assert report.warnings == ["no process is of role judge; there are: actor, driver, engine"]
    assert {process.role for process in report.processes} == {"actor"}


def test_traces_that_say_no_role_are_left_out_by_roles_and_that_is_said(tmp_path):
    engine = write_trace(tmp_path / "run1-TP-0.trace.json", [op("decode", 10, 5)])
    other = write_trace(tmp_path / "rank0.json", [op("train", 10, 5)])
    report, merged = merge([engine, other], tmp_path / "out" / "o.json", roles=frozenset({"engine"}))
    assert names(merged) == ["decode"]
    assert report.left_out == [f"{other} (says no role)"]
    with pytest.raises(MergeError, match="no process is of role actor; there are: engine; 1 say no role"):
        merge([engine, other], tmp_path / "out" / "p.json", roles=frozenset({"actor"}))


def test_a_range_is_named_after_what_is_in_it(tmp_path):
    made = write_synthetic_run(tmp_path)
    report = merge_run([made.folder], (0, 9), options=MergeOptions(jobs=1))
    assert [output.path for output in report.outputs] == [
        str(made.folder / "merged" / "rollout_000000-000001.trace.json.gz")
    ]
    assert report.warnings == ["of rollouts 0:9, the run has 0, 1"]
    report = merge_run([made.folder], (1, 9), options=MergeOptions(jobs=1))
    assert report.outputs[0].path.endswith("/rollout_000001.trace.json.gz")
    report = merge_run([made.folder], (0, 2), options=MergeOptions(jobs=1))
    assert report.warnings == []


@pytest.mark.parametrize("name", ["all.trace", "all.gz", "all.JSON", "all.perfetto-trace"])
@pytest.mark.parametrize("of_run", [True, False])
def test_a_file_of_another_kind_is_no_folder(tmp_path, name, of_run):
    source = write_trace(tmp_path / "rank0.json", [op("train", 10, 5)])
    if of_run:
        source = write_synthetic_run(tmp_path).folder
    verbs = (["merge", source], ["check", source, "--fix"])
    for arguments in verbs if not of_run else verbs[:1]:
        done = command_line.run(*arguments, "-o", tmp_path / name)
        assert done.exit_code == 2
        assert f"-o {tmp_path / name}: a file's name ends in .json or .json.gz" in done.stderr
        assert not (tmp_path / name).exists()


def test_such_a_folder_that_is_there_is_taken(tmp_path):
    source = write_trace(tmp_path / "rank0.json", [op("train", 10, 5)])
    (tmp_path / "all.trace").mkdir()
    assert command_line.run("merge", source, "-o", tmp_path / "all.trace").exit_code == 0
    assert (tmp_path / "all.trace" / "merged.trace.json.gz").is_file()
