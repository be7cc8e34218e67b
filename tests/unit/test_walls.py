"""What import-linter cannot see: the frameworks stay out of `sys.modules` and need not be installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from slime_profiler_plugin.cli import main
from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.testing import write_synthetic_run

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS = ("torch", "ray", "nvtx", "sglang", "megatron", "slime")

#: Run in a fresh interpreter before the code under test. `absent`: importing a framework fails, as where
#: it is not installed. Either way the last line printed names the frameworks and own modules loaded.
_PRELUDE = """
import importlib.abc, json, sys
FRAMEWORKS = {frameworks!r}

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in FRAMEWORKS:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

if {absent!r}:
    sys.meta_path.insert(0, Absent())
"""
_REPORT = """
print()
roots = (*FRAMEWORKS, "slime_profiler_plugin")
print(json.dumps(sorted(name for name in sys.modules if name.split(".")[0] in roots)))
"""


def _modules_after(code: str, *, absent: bool = False, cwd: Path = ROOT) -> set[str]:
    """Frameworks and own modules that a fresh interpreter has loaded after `code`."""
    program = _PRELUDE.format(frameworks=FRAMEWORKS, absent=absent) + code + _REPORT
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout.splitlines()[-1]))


def _frameworks(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] in FRAMEWORKS}


@pytest.mark.parametrize("absent", [False, True])
def test_import_loads_no_framework_and_no_recorder(absent):
    modules = _modules_after("import slime_profiler_plugin", absent=absent)
    assert not _frameworks(modules)
    assert not {name for name in modules if name.startswith("slime_profiler_plugin.record")}


#: Every call of the interface, off. The audit hook sees each file opened and thread or process started.
_OFF = """
import os
from slime_profiler_plugin import timeline

@timeline.traced("advantages")
def advantages():
    pass

def work():
    with timeline.phase("train_step", step=1):
        span = timeline.begin("optimizer", bytes=8)
        span.end(error="x")
    timeline.mark("here", sync=3)
    with timeline.rollout(3):
        advantages()
    timeline.set_rollout(4)
    timeline.set_identity(rank=1)
    timeline.export_window()
    timeline.flush()
    timeline.stop()
    return timeline.source()

seen = []
watched = ("open", "_thread.start_new_thread", "os.fork", "subprocess.Popen", "socket.__new__", "import")
sys.addaudithook(lambda event, arguments: seen.append((event, str(arguments))) if event in watched else None)
os.environ["SLIME_PROFILER"] = {switch!r}
assert timeline.start() is False and not timeline.on
seen.clear()  # start() may import what reads the switch
for _ in range(3):
    assert work() is None
assert not seen, seen
"""


@pytest.mark.parametrize("switch", ["off", ""])
@pytest.mark.parametrize("absent", [False, True])
def test_off_opens_no_file_starts_no_thread_and_imports_nothing(absent, switch, tmp_path):
    modules = _modules_after(_OFF.format(switch=switch), absent=absent, cwd=tmp_path)
    assert not _frameworks(modules)
    assert not {name for name in modules if name.startswith("slime_profiler_plugin.record")}
    assert list(tmp_path.iterdir()) == []


def _verbs(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    inner = command.commands if isinstance(command, click.Group) else {}
    return [path, *(verb for name, child in inner.items() for verb in _verbs(child, (*path, name)))]


@pytest.mark.parametrize("verb", _verbs(main), ids=lambda verb: "-".join(verb) or "none")
def test_help_of_every_verb_loads_no_framework(verb):
    code = f"from slime_profiler_plugin.cli import main\nmain({[*verb, '--help']}, standalone_mode=False)"
    modules = _modules_after(code, absent=True)
    assert not _frameworks(modules)
    parts = {name.split(".")[1] for name in modules if "." in name}
    assert not parts & {"record", "merge", "demo", "analyze", "attach", "check", "serve"}


@pytest.mark.parametrize(
    "code",
    [
        "from slime_profiler_plugin.cli import main\nmain(['env', '--into', '{}'], standalone_mode=False)",
        "from slime_profiler_plugin.cli import main\nmain(['env', '--shell'], standalone_mode=False)",
        "from slime_profiler_plugin.launch import plan\nplan(['train.py'], ['python'], {})",
    ],
    ids=["env", "env for a shell", "launch"],
)
@pytest.mark.parametrize("absent", [False, True])
def test_preparing_an_environment_loads_no_framework_and_no_recorder(absent, code):
    modules = _modules_after(code, absent=absent)
    assert not _frameworks(modules)
    assert not {name for name in modules if name.startswith("slime_profiler_plugin.record")}


@pytest.mark.parametrize("absent", [False, True])
def test_merge_loads_no_framework_and_no_recorder(absent, tmp_path):
    run = write_synthetic_run(tmp_path)
    code = f"""
from slime_profiler_plugin.cli import main
try:
    main(["merge", {str(run.folder)!r}, "--rollout", "all"])
except SystemExit as end:
    assert end.code == 0, end.code
"""
    modules = _modules_after(code, absent=absent)
    assert not _frameworks(modules)
    assert not {name for name in modules if name.startswith("slime_profiler_plugin.record")}
    assert len(list(RunPaths.at(run.folder).merged.iterdir())) == 3


@pytest.mark.parametrize("absent", [False, True])
def test_ls_loads_no_framework_and_no_recorder(absent, tmp_path):
    run = write_synthetic_run(tmp_path)
    code = f"""
from slime_profiler_plugin.cli import main
for folder in ({str(tmp_path)!r}, {str(run.folder)!r}):
    main(["ls", folder], standalone_mode=False)
"""
    modules = _modules_after(code, absent=absent)
    assert not _frameworks(modules)
    assert not {name for name in modules if name.startswith("slime_profiler_plugin.record")}


@pytest.mark.parametrize("absent", [False, True])
def test_report_loads_no_framework_and_no_recorder(absent, tmp_path, monkeypatch):
    pytest.importorskip("duckdb")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = write_synthetic_run(tmp_path)
    code = f"""
from slime_profiler_plugin.cli import main
try:
    main(["report", {str(run.folder)!r}])
except SystemExit as end:
    assert end.code == 0, end.code
"""
    modules = _modules_after(code, absent=absent)
    assert not _frameworks(modules)
    assert not {name for name in modules if name.startswith("slime_profiler_plugin.record")}


@pytest.mark.parametrize("absent", [False, True])
def test_check_loads_no_framework_and_no_recorder(absent, tmp_path):
    (tmp_path / "rank0.json").write_text(
        '{"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}'
    )
    code = f"""
from slime_profiler_plugin.cli import main
try:
    main(["check", {str(tmp_path)!r}])
except SystemExit as end:
    assert end.code == 0, end.code
"""
    modules = _modules_after(code, absent=absent)
    assert not _frameworks(modules)
    assert not {name for name in modules if name.startswith("slime_profiler_plugin.record")}


#: The page of a run is served to its end, by the signal that ends it.
_OPEN = """
import os, signal, threading, urllib.request
from slime_profiler_plugin import cli, serve

def look(page, run):
    status = urllib.request.urlopen(page.url).status
    threading.Timer(0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    return [f"answered {{status}}"]

serve.describe_page = look
cli.main(["open", {run!r}], standalone_mode=False)
"""


@pytest.mark.parametrize("absent", [False, True])
def test_open_loads_no_framework_no_recorder_and_not_viztracer(absent, tmp_path):
    pytest.importorskip("viztracer")
    run = write_synthetic_run(tmp_path)
    code = _OPEN.format(run=str(run.folder)) + "assert 'viztracer' not in sys.modules\n"
    modules = _modules_after(code, absent=absent)
    assert not _frameworks(modules)
    assert not {name for name in modules if name.startswith("slime_profiler_plugin.record")}
    assert len(list(RunPaths.at(run.folder).merged.iterdir())) == 1


@pytest.mark.parametrize("package", ["slime_tb_plugin", "slime_profiler_configs"])
def test_other_packages_load_no_framework(package):
    sources = {"slime_tb_plugin": ROOT / "tb_plugin", "slime_profiler_configs": None}
    path = f"sys.path.insert(0, {str(sources[package])!r})\n" if sources[package] else ""
    if sources[package] is None:
        pytest.importorskip(package, reason="the checkout is not installed; `make test` installs it")
    assert not _frameworks(_modules_after(f"{path}import {package}", absent=True))


def test_every_part_of_the_package_stands_behind_a_contract():
    contracts = (ROOT / "pyproject.toml").read_text().split("[[tool.importlinter.contracts]]")[1:]
    sources = {
        module
        for contract in contracts
        for found in re.findall(r"(?:source_modules|protected_modules) = \[(.*?)\]", contract, re.DOTALL)
        for module in re.findall(r'"([^"]+)"', found)
    }
    folder = ROOT / "slime_profiler_plugin"
    parts = {path.stem for path in folder.glob("*.py")} | {
        path.parent.name for path in folder.glob("*/__init__.py")
    }
    parts -= {"__init__", "demo"}  # the demo may import anything but cli, which nothing imports
    assert {f"slime_profiler_plugin.{part}" for part in parts} <= sources


@pytest.mark.parametrize("absent", [False, True])
def test_the_tensorboard_tab_loads_no_framework_and_no_recorder(absent, tmp_path):
    pytest.importorskip("tensorboard", exc_type=ImportError)
    write_synthetic_run(tmp_path / "runs")
    code = f"""
import os
os.environ["XDG_CACHE_HOME"] = {str(tmp_path / "cache")!r}
sys.path[:0] = [{str(ROOT / "tests")!r}, {str(ROOT / "tb_plugin")!r}]
from pathlib import Path
from tab_requests import RUN, ROLLOUT, make_get, merge
get = make_get(Path({str(tmp_path / "runs")!r}))
for route, query in [("/runs", ""), ("/overview", RUN), ("/ranks", ROLLOUT), ("/sync", RUN)]:
    assert get(route, query).status == 200
assert merge(get, ROLLOUT)["state"] == "done"
"""
    modules = _modules_after(code, absent=absent)
    assert not _frameworks(modules)
    assert not {name for name in modules if name.startswith("slime_profiler_plugin.record")}
