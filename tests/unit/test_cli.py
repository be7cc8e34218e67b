"""The command line, driven as a person would, its output read back."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from slime_profiler_plugin import __version__, cli
from slime_profiler_plugin.testing import write_synthetic_run


def run(*arguments):
    try:
        runner = CliRunner(mix_stderr=False)
    except TypeError:  # since click 8.2 the streams are always apart
        runner = CliRunner()
    return runner.invoke(cli.main, [str(argument) for argument in arguments])


def merged_names(folder):
    return sorted(path.name for path in (folder / "merged").iterdir())


def test_version_is_the_packages():
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"slime-profiler, version {__version__}\n")


def test_merge_of_a_run_writes_its_latest_complete_rollout_and_says_what_it_did(tmp_path):
    made = write_synthetic_run(tmp_path)
    result = run("merge", made.folder)
    assert result.exit_code == 0
    assert merged_names(made.folder) == ["rollout_000001.trace.json.gz"]
    lines = result.stdout.splitlines()
    assert lines[0] == "run synthetic, attempt 0"
    assert "  actor: 2 of 2 ranks seen" in lines
    total = sum(len(process.lines) for process in made.processes)
    assert any(
        f"rollout_000001.trace.json.gz: {total} read = 36 written + 55 of other" in line for line in lines
    )
    assert lines[-1] == "  6 arrows from bucket_send to engine_receive"


@pytest.mark.parametrize(
    ("rollout", "names"),
    [
        ("initial", ["initial.trace.json.gz"]),
        ("0", ["rollout_000000.trace.json.gz"]),
        ("0:2", ["rollout_000000-000001.trace.json.gz"]),
        ("all", ["initial.trace.json.gz", "rollout_000000.trace.json.gz", "rollout_000001.trace.json.gz"]),
    ],
)
def test_rollout_option(tmp_path, rollout, names):
    made = write_synthetic_run(tmp_path)
    assert run("merge", made.folder, "--rollout", rollout).exit_code == 0
    assert merged_names(made.folder) == names


def test_output_option(tmp_path):
    made = write_synthetic_run(tmp_path)
    assert run("merge", made.folder, "-o", tmp_path / "x.json").exit_code == 0
    assert json.loads((tmp_path / "x.json").read_text())["slime_profiler_merge"]["rollouts"] == [1]
    assert run("merge", made.folder, "--rollout", "all", "-o", tmp_path / "many").exit_code == 0
    assert len(list((tmp_path / "many").iterdir())) == 3


def test_json_report(tmp_path):
    made = write_synthetic_run(tmp_path)
    result = run("merge", made.folder, "--rollout", "all", "--json")
    report = json.loads(result.stdout)
    assert [output["rollouts"] for output in report["outputs"]] == [["initial"], [0], [1]]
    assert {process["ending"] for process in report["processes"]} == {"ended"}


def test_partial_run_exits_3_unless_allowed(tmp_path):
    made = write_synthetic_run(tmp_path)
    path = next(made.folder.glob("records/*/201-*.jsonl"))
    path.write_bytes(path.read_bytes()[:-5])
    result = run("merge", made.folder)
    assert result.exit_code == 3
    assert f"truncated: {path}:" in result.stdout
    assert run("merge", made.folder, "--allow-partial").exit_code == 0
    path.unlink()
    result = run("merge", made.folder)
    assert result.exit_code == 3
    assert "  actor: 1 of 2 ranks seen; missing rank 1" in result.stdout.splitlines()


def test_files_that_are_no_source_are_listed_and_no_failure(tmp_path):
    made = write_synthetic_run(tmp_path)
    (made.folder / "records" / "host0" / "notes.txt").write_text("hello")
    result = run("merge", made.folder)
    assert result.exit_code == 0
    assert "1 files are no source" in result.stdout


def test_folder_of_runs_lists_them_and_writes_nothing(tmp_path):
    made = [write_synthetic_run(tmp_path, run_id=name) for name in ("b", "a")]
    result = run("merge", tmp_path)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert not any((run_.folder / "merged").exists() for run_ in made)
    listed = json.loads(run("merge", tmp_path, "--json").stdout)
    assert listed["runs"] == [str(tmp_path / "a"), str(tmp_path / "b")]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["RUN", "--rollout", "7"], 1, "run synthetic has no rollout 7; it has initial, 0, 1"),
        (["RUN", "--rollout", "5:2"], 2, "--rollout '5:2': allowed are"),
        (["RUN", "--rollout", "all", "-o", "OUT/x.json"], 2, "3 rollouts do not fit one file"),
        (["RUN", "--rollout", "9" * 5000], 2, "allowed are"),
        (["RUN", "--rollout", "0:" + "9" * 300], 2, "allowed are"),
        (["OUT/nothing"], 1, "nothing: no such folder"),
        (["RUN/run.json"], 1, "run.json: a file, not the folder of a run"),
        (["RUN", "-o", "RUN/run.json"], 2, "run.json would lie among the run's own files"),
        (["RUN", "-o", "RUN/attempt-000.json"], 2, "would lie among the run's own files"),
        (["RUN", "-o", "RUN/records"], 2, "would lie among the run's own files"),
        (["RUN", "-o", "RUN/traces/rollout_000001/x.json.gz"], 2, "would lie among the run's own files"),
        (["RUN", "-o", "RUN/run.json/x.json"], 1, "run.json: File exists"),
        (["RUN", "-o", "RUN/traces.json"], 1, "traces.json: Is a directory"),
    ],
)
def test_errors_are_one_line_that_names_the_reason(tmp_path, arguments, code, message):
    made = write_synthetic_run(tmp_path)
    (made.folder / "traces.json").mkdir()
    result = run(
        "merge", *(a.replace("RUN", str(made.folder)).replace("OUT", str(tmp_path)) for a in arguments)
    )
    assert result.exit_code == code
    (line,) = result.stderr.splitlines()
    assert line.startswith("slime-profiler: ")
    assert message in line
    assert not (made.folder / "merged").exists()


@pytest.mark.parametrize("run_id", ['"synthetic"', "5", "null"])
def test_run_of_which_nothing_can_be_read_says_why(tmp_path, run_id):
    made = write_synthetic_run(tmp_path)
    files = sorted(made.folder.glob("records/*/*"))
    for path in files:
        path.write_bytes(b"")
    (made.folder / "run.json").write_text(f'{{"run_id": {run_id}}}')
    result = run("merge", made.folder)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("slime-profiler: run synthetic: no record names a rollout; ")
    assert f"{files[0]}: refused: the file is empty" in line
    assert line.endswith(f"and {len(files) - 3} more")


def test_rollouts_with_names_of_their_own_are_merged_into_the_run_folder(tmp_path):
    made = write_synthetic_run(tmp_path)
    for path in made.folder.glob("records/*/*"):
        path.write_bytes(path.read_bytes().replace(b'"rollout":1', b'"rollout":"../../evil"'))
    for choice in ("latest", "all"):
        assert run("merge", made.folder, "--rollout", choice).exit_code == 0
    assert ".._.._evil.trace.json.gz" in merged_names(made.folder)
    assert [path.name for path in tmp_path.iterdir()] == [made.folder.name]


def test_demo_that_cannot_record_is_an_error_in_one_line(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("ray")
    (tmp_path / "file").write_text("no folder")
    result = run("demo", "--out", tmp_path / "file")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(
        f"slime-profiler: nothing can be recorded below {tmp_path / 'file'}"
    )


def test_no_run_is_a_usage_error():
    assert run("merge").exit_code == 2
    assert run("merge", "x", "--nonsense").exit_code == 2


def test_shipped_configurations_are_listed_and_shown():
    names = run("config", "list").stdout.split()
    assert {"timeline", "kernels", "nsys", "everything"} <= set(names)
    assert json.loads(run("config", "list", "--json").stdout) == names
    shown = run("config", "show", "timeline")
    assert shown.exit_code == 0
    assert shown.stdout.startswith("#")
    unknown = run("config", "show", "nonsense")
    assert unknown.exit_code == 1
    assert "nonsense" in unknown.stderr
    assert ", off," not in unknown.stderr


def test_a_configuration_file_is_checked_and_shown(tmp_path):
    mine = tmp_path / "b.yaml"
    mine.write_text("# mine\nout: there\nprofiler: {ranks: last}\n")
    shown = run("config", "show", mine)
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, mine.read_text(), "")
    mine.write_text("# mine\nprofiler: {schedule: {active: 0}}\n")
    refused = run("config", "show", mine)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"slime-profiler: {mine}: profiler.schedule.active: 0 is not allowed; allowed: a whole number >= 1\n"
    )
    missing = run("config", "show", tmp_path / "c.yaml")
    assert missing.exit_code == 1
    assert missing.stderr == f"slime-profiler: {tmp_path}/c.yaml: cannot be read: No such file or directory\n"


@pytest.mark.parametrize(
    "verb", [[], ["merge"], ["open"], ["ls"], ["config"], ["config", "list"], ["config", "show"], ["demo"]]
)
def test_help_needs_no_framework(verb):
    program = (
        "import sys\n"
        "from slime_profiler_plugin import cli\n"
        "try:\n"
        f"    cli.main({[*verb, '--help']!r}, prog_name='slime-profiler')\n"
        "except SystemExit as done:\n"
        "    assert not done.code\n"
        "heavy = {'torch', 'ray', 'nvtx', 'numpy', 'rich', 'isal', 'slime_profiler_plugin.record'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("Usage: slime-profiler")
    assert result.stderr.strip() == "[]"


def test_merge_needs_no_framework(tmp_path):
    made = write_synthetic_run(tmp_path)
    program = (
        "import sys\n"
        "from slime_profiler_plugin.merge import merge_run\n"
        f"assert merge_run([{str(made.folder)!r}], 'all').exit_code() == 0\n"
        "print(sorted({'torch', 'ray', 'nvtx'} & set(sys.modules)))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
