"""The environment that attaches: what `env` prints, what `launch` starts."""

import json
import os
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from slime_profiler_plugin.attach import (
    AUTOLOAD_FOLDER,
    EnvironmentUsageError,
    _environment,
    add_to_runtime_env,
    environment_for,
    shell_lines,
)
from slime_profiler_plugin.config import ConfigError
from slime_profiler_plugin.launch import LaunchUsageError, plan

OURS = str(AUTOLOAD_FOLDER)


@pytest.mark.parametrize("text", ["", "{}", '{"env_vars": {}}', '{"env_vars": null}'])
def test_without_a_path_the_nodes_own_stays_behind_ours(text):
    found = json.loads(add_to_runtime_env(text, "kernels", {}))
    assert found == {"env_vars": {"SLIME_PROFILER": "kernels", "PYTHONPATH": OURS + ":${PYTHONPATH}"}}


@pytest.mark.parametrize("path", ["/a:/b", f"/a:{OURS}:/b", f"{OURS}:/a:/b"])
def test_a_path_of_the_users_follows_ours_once(path):
    text = json.dumps({"env_vars": {"PYTHONPATH": path}})
    once = add_to_runtime_env(text, "timeline", {})
    assert json.loads(once)["env_vars"]["PYTHONPATH"] == f"{OURS}:/a:/b"
    assert add_to_runtime_env(once, "timeline", {}) == once


def test_every_other_value_stays_byte_for_byte():
    values = '{"working_dir":"./x","n":[1.50, 1e3,  12345678901234567890],"env_vars":{"A":"\\u00e9","B":"1"}}'
    found = add_to_runtime_env(values, "timeline", {})
    for part in ('"working_dir":"./x"', '"n":[1.50, 1e3,  12345678901234567890]', '"A":"\\u00e9"', '"B":"1"'):
        assert part in found
    assert list(json.loads(found)["env_vars"]) == ["A", "B", "SLIME_PROFILER", "PYTHONPATH"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "the runtime environment is no JSON object"),
        ("{", "the runtime environment is no JSON object"),
        ('{"a": "\udcff"}', "may hold bytes that are not UTF-8"),
        ('{"env_vars": 3}', "env_vars is no JSON object"),
        ('{"env_vars": {"PYTHONPATH": ["/a"]}}', "PYTHONPATH is no text"),
    ],
)
def test_what_is_no_runtime_environment_is_refused_by_its_reason(text, reason):
    with pytest.raises(EnvironmentUsageError, match=reason):
        add_to_runtime_env(text, "timeline", {})


def test_a_configuration_is_checked_and_a_path_of_one_becomes_absolute(tmp_path, monkeypatch):
    (tmp_path / "own.yaml").write_text("out: /somewhere\n")
    monkeypatch.chdir(tmp_path)
    assert environment_for("own.yaml", {"PYTHONPATH": "/u"}) == {
        "SLIME_PROFILER": str(tmp_path / "own.yaml"),
        "PYTHONPATH": f"{OURS}:/u",
    }
    with pytest.raises(ConfigError, match="no shipped configuration is called 'timelin'"):
        add_to_runtime_env("{}", "timelin", {})
    # what the environment says now does not matter for what it shall say
    assert environment_for("timeline", {"SLIME_PROFILER": "nonsense"})["SLIME_PROFILER"] == "timeline"


@pytest.mark.parametrize("before", [None, "", "/user/folder"])
def test_lines_for_a_shell_keep_what_it_has(before):
    environ = {"PATH": os.environ["PATH"]} | ({} if before is None else {"PYTHONPATH": before})
    script = shell_lines("timeline", {}) + '\nprintf "%s|%s" "$SLIME_PROFILER" "$PYTHONPATH"'
    done = subprocess.run(["sh", "-c", script], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == f"timeline|{OURS}" + (f":{before}" if before else "")


def cli(*arguments):
    command = [sys.executable, "-m", "slime_profiler_plugin.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_verb_prints_only_json_or_fails_with_a_reason():
    good = cli("env", "--config", "kernels", "--into", '{"a": 1}')
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["a"] == 1
    bad = cli("env", "--into", "{")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "is no JSON object" in bad.stderr
    assert cli("env", "--config", "nonsense").returncode == 2
    assert cli("env", "--shell", "--into", "{}").returncode == 2
    assert cli("env", "--shell").stdout.startswith("export SLIME_PROFILER=timeline\nexport PYTHONPATH=")


@pytest.mark.parametrize(
    ("arguments", "environ", "switch", "command"),
    [
        (["train.py", "--lr", "1"], {}, "timeline", ["train.py", "--lr", "1"]),
        (["--config", "kernels", "train.py"], {"SLIME_PROFILER": "off"}, "off", ["train.py"]),
        (["--config", "kernels", "train.py"], {"SLIME_PROFILER": "timeline"}, "kernels", ["train.py"]),
        (["train.py"], {"SLIME_PROFILER": " No"}, "No", ["train.py"]),
        (["train.py"], {"SLIME_PROFILER": " "}, "timeline", ["train.py"]),
        (["--config=kernels", "t.py", "--config", "theirs"], {}, "kernels", ["t.py", "--config", "theirs"]),
        (["t.py", "--communication-timeline", "x"], {}, "timeline", ["t.py", "x"]),
        (["--communication-timeline", "t.py"], {"SLIME_PROFILER": "kernels"}, "kernels", ["t.py"]),
    ],
)
def test_what_launch_starts(arguments, environ, switch, command):
    found = plan(arguments, ["python", "-u"], environ)
    assert found.command == ["python", "-u", *command]
    assert found.variables["SLIME_PROFILER"] == switch


def test_each_launch_has_an_id_and_one_inside_another_has_the_same():
    first, second = (plan(["t.py"], ["python"], {}).variables["SLIME_PROFILER_LAUNCHED"] for _ in range(2))
    assert first != second
    inside = plan(["t.py"], ["python"], {"SLIME_PROFILER_LAUNCHED": first})
    assert "SLIME_PROFILER_LAUNCHED" not in inside.variables


def test_a_folder_that_cannot_stand_on_a_path_is_refused(monkeypatch):
    monkeypatch.setattr(_environment, "AUTOLOAD_FOLDER", Path("/a:b"))
    for ask in (shell_lines, environment_for, partial(add_to_runtime_env, "{}")):
        with pytest.raises(EnvironmentUsageError, match="'/a:b' has a ':' in it"):
            ask("timeline", {})


#: A driver and the two processes it starts, which nothing but our launcher joins.
SEVERAL = """
import multiprocessing
from slime_profiler_plugin import timeline

def record(rank):
    timeline.start(role="actor", rank=rank, world_size=2)
    with timeline.phase("train_step"):
        pass

if __name__ == "__main__":
    timeline.start(role="driver")
    with timeline.phase("generate"):
        pass
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=record, args=(rank,)) for rank in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
"""


def test_the_processes_of_a_launched_program_are_one_run_and_one_attempt(tmp_path):
    pytest.importorskip("nvtx")  # without it each process says so
    (tmp_path / "several.py").write_text(SEVERAL)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "slime_profiler_plugin.launch", str(tmp_path / "several.py")],
            env={**os.environ, "SLIME_PROFILER_OUT": str(tmp_path / "out")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
    runs = list((tmp_path / "out").iterdir())
    assert len(runs) == 2
    for run in runs:
        assert [path.name for path in run.glob("attempt-*")] == ["attempt-000.json"]
        assert len(list(run.glob("records/*/*.jsonl"))) == 3


@pytest.mark.parametrize("arguments", [[], ["--config"], ["--no-such", "t.py"], ["--config", "kernels"]])
def test_what_launch_refuses(arguments):
    with pytest.raises(LaunchUsageError, match="usage: "):
        plan(arguments, ["python"], {})


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_where_python_would_attach_nothing_launch_says_so(option, tmp_path):
    # with -I and -E the package has to be found otherwise; that is what `-m` does
    code = (
        "import runpy, sys\n"
        f"sys.path[:0] = {[str(Path(__file__).resolve().parents[3]), *sys.path]!r}\n"
        "sys.argv = ['launch', 'program.py']\n"
        "runpy.run_module('slime_profiler_plugin.launch', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, option, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("slime_profiler_plugin.launch: with -E, -I or -S")


def test_a_launched_program_is_its_own(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "import os, sys\n"
        "flag = sys.flags.dont_write_bytecode\n"
        "print(__name__, sys.argv[1:], sys.path[0], os.environ['SLIME_PROFILER'], flag)\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    command = [sys.executable, "-B", "-m", "slime_profiler_plugin.launch", str(script), "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path.cwd())
    assert done.stderr == ""
    assert done.stdout == f"__main__ ['7'] {tmp_path} timeline 1\n"
    assert done.returncode == 7
    wrong = subprocess.run(command[:4], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("slime_profiler_plugin.launch: usage: ")


def test_a_launched_program_is_ended_by_its_own_signals(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    command = [sys.executable, "-m", "slime_profiler_plugin.launch", str(script)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGTERM


def test_shell_words_are_quoted(tmp_path):
    config = tmp_path / "a b.yaml"
    config.write_text("out: x\n")
    assert shlex.split(shell_lines(str(config), {}))[1] == f"SLIME_PROFILER={config}"
