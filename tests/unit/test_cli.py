"""The command line, driven as a person would, its output read back."""

import json
import signal
import subprocess
import sys

import pytest
from command_line import run

from slime_profiler_plugin import __version__, cli, schema
from slime_profiler_plugin.demo import TRANSPORTS
from slime_profiler_plugin.testing import MS, ProcessFile, write_synthetic_run


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
    total = sum(len(process.lines) for process in made.processes)
    assert lines[1:] == [
        "  ranks seen: actor 2 of 2, engine 2 of 2",
        f"merged into {made.folder / 'merged'}:",
        # Generation starts it, and the sync that starts 700 ms later ends it after 200 ms.
        "  rollout_000001.trace.json.gz: rollout 1 lasted 900 ms; 36 events, 6 arrows, nothing dropped",
        "  6 arrows from bucket_send to engine_receive",
        f"  {total} read = 36 written + 55 of other rollouts + {total - 91} descriptions + 0 dropped",
    ]


def test_merge_of_several_rollouts_has_a_line_for_each_and_one_sum(tmp_path):
    made = write_synthetic_run(tmp_path)
    lines = run("merge", made.folder, "--rollout", "all").stdout.splitlines()
    place = lines.index(f"merged into {made.folder / 'merged'}:")
    assert lines[place + 1 :] == [
        "  initial.trace.json.gz: initial lasted 200 ms; 19 events, 6 arrows, nothing dropped",
        "  rollout_000000.trace.json.gz: rollout 0 lasted 900 ms; 36 events, 6 arrows, nothing dropped",
        "  rollout_000001.trace.json.gz: rollout 1 lasted 900 ms; 36 events, 6 arrows, nothing dropped",
        "  18 arrows from bucket_send to engine_receive",
        lines[-1],
    ]
    read = 3 * sum(len(process.lines) for process in made.processes)
    # In two of the three files a record is one of another rollout.
    written, others = 19 + 36 + 36, 2 * (19 + 36 + 36)
    assert lines[-1] == (
        f"  all files: {read} read = {written} written + {others} of other rollouts "
        f"+ {read - written - others} descriptions + 0 dropped"
    )
    ranged = run("merge", made.folder, "--rollout", "0:2", "-o", tmp_path / "x.json").stdout
    assert f"merged into {tmp_path}:\n  x.json: rollouts 0 to 1 lasted 1.900 s; 72 events, " in ranged


def test_merge_says_what_was_dropped_and_which_arrows_were_not_drawn(tmp_path):
    sender = ProcessFile("r", pid=1, role="actor", rank=0)
    sender.open("train_step", 10 * MS, 20 * MS, rollout=0)
    sender.lines.append(
        schema.Phase(id=1, name="train_step", start_ns=10 * MS, dur_ns=30 * MS, tid=1, rollout=0)
    )
    sender.end(12_345 * MS)
    receiver = ProcessFile("r", pid=2, role="engine", rank=0, world_size=1)
    receiver.phase("engine_receive", 50 * MS, 12_020 * MS, rollout=0, sync=0, bucket=0, source="actor-0@1-1")
    receiver.end(12_345 * MS)
    for process in (sender, receiver):
        process.write(tmp_path)
    read = len(sender.lines) + len(receiver.lines)
    lines = run("merge", tmp_path / "r").stdout.splitlines()
    assert lines[1] == "  ranks seen: actor 1 of ?, engine 1 of 1"
    assert lines[-4:] == [
        "  rollout_000000.trace.json.gz: rollout 0 lasted 12.0 s; 2 events, 0 arrows, 1 dropped",
        "    1 dropped: superseded by the phase that ended",
        "    1 arrow not drawn from bucket_send to engine_receive: no send matches the receive",
        f"  {read} read = 2 written + 0 of other rollouts + {read - 3} descriptions + 1 dropped",
    ]


def test_merge_tells_how_long_a_rollout_took_in_each_attempt(tmp_path):
    made = write_synthetic_run(tmp_path, attempt=1, start_ns=9_000_000 * MS)
    write_synthetic_run(tmp_path, attempt=0)
    lines = run("merge", made.folder, "--rollout", "1").stdout.splitlines()
    assert lines[0] == "run synthetic, attempts 0, 1"
    assert "  attempt 1: ranks seen: actor 2 of 2, engine 2 of 2" in lines
    assert any(": rollout 1 lasted 900 ms in attempt 0, 900 ms in attempt 1; 72 " in line for line in lines)
    (output,) = json.loads(run("merge", made.folder, "--rollout", "1", "--json").stdout)["outputs"]
    assert output["lasted_ns"] == {"0": 900 * MS, "1": 900 * MS}


def test_roles_are_in_the_order_in_which_all_else_shows_them(tmp_path):
    for pid, role in enumerate(("engine", "zebra", "critic", "actor"), 1):
        process = ProcessFile("r", pid=pid, role=role, rank=0, world_size=1)
        process.phase("train_step", 10, 20, rollout=0)
        process.end(30)
        process.write(tmp_path)
    merged = run("merge", tmp_path / "r").stdout.splitlines()
    assert merged[1] == "  ranks seen: actor 1 of 1, critic 1 of 1, engine 1 of 1, zebra 1 of 1"
    listed = run("ls", tmp_path / "r").stdout
    assert [line.split()[2] for line in listed.splitlines()[-4:]] == ["actor", "critic", "engine", "zebra"]


def test_process_that_was_replaced_says_by_whom(tmp_path):
    driver = ProcessFile("r", pid=1, role="driver")
    driver.phase("generate", 1, 60_000 * MS, rollout=0)
    driver.end(60_000 * MS)
    killed = ProcessFile("r", pid=2, role="actor", rank=0)
    killed.open("train_step", 1000, 3000 * MS, rollout=0)
    again = ProcessFile("r", pid=3, role="actor", rank=0, start_ns=5000 * MS)
    again.phase("train_step", 6000 * MS, 7000 * MS, rollout=0)
    again.end(60_000 * MS)
    for process in (driver, killed, again):
        process.write(tmp_path)
    told = "ended early, in open phase train_step, replaced by incarnation 2"
    assert f"  actor rank 0 · incarnation 1: {told}" in run("merge", tmp_path / "r").stdout.splitlines()
    listed = "actor rank 0 · incarnation 1: ended early, replaced by incarnation 2"
    assert f"  {listed}" in run("ls", tmp_path / "r").stdout.splitlines()
    assert f"    {listed}" in run("ls", tmp_path).stdout.splitlines()
    for verb, pick in (("merge", lambda told: told), ("ls", lambda told: told["runs"][0])):
        processes = pick(json.loads(run(verb, tmp_path / "r", "--json").stdout))["processes"]
        assert {p["pid"]: p["replaced_by"] for p in processes} == {1: None, 2: 2, 3: None}


def test_processes_of_one_rank_side_by_side_do_not_replace_each_other(tmp_path):
    driver = ProcessFile("r", pid=1, role="driver")
    driver.phase("generate", 1, 60_000 * MS, rollout=0)
    driver.end(60_000 * MS)
    driver.write(tmp_path)
    for pid, last in ((2, 9000), (3, 60_000)):
        process = ProcessFile("r", pid=pid, role="engine", engine={"index": 0}, start_ns=pid * MS)
        process.clock(last * MS)
        process.write(tmp_path)
    lines = run("merge", tmp_path / "r").stdout.splitlines()
    assert "  engine 0 · incarnation 1: ended early" in lines


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
    assert f"  no source: {made.folder}/records/host0/notes.txt" in result.stdout.splitlines()


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
        (["OUT/nothing"], 1, "nothing: refused: No such file or directory"),
        (["RUN/run.json"], 1, "run.json: refused: no trace: JSON without a traceEvents list"),
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
    damaged = len(files) + (run_id != '"synthetic"')
    assert line.endswith(f"and {damaged - 3} more")


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_tidies_up_when_it_is_told_to_end(number):
    code = (
        "import os, signal, sys\n"
        "signal.signal(int(sys.argv[2]), signal.SIG_DFL)\n"  # nohup, for one, has it ignored
        "from slime_profiler_plugin.cli import main\n"
        "@main.command()\n"
        "def wait():\n"
        "    try:\n"
        "        os.kill(os.getpid(), int(sys.argv[2]))\n"
        "        input()\n"
        "    finally:\n"
        "        print('tidied up', flush=True)\n"
        "main([sys.argv[1]])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "wait", str(int(number))],
        check=False,
        stdin=subprocess.PIPE,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (128 + number, "tidied up\n")


def test_the_demo_takes_every_transport():
    (option,) = [each for each in cli.main.commands["demo"].params if each.name == "transport"]
    assert tuple(option.type.choices) == (*TRANSPORTS, "all")
