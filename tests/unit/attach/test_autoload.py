"""The folder that attaches processes by being on their path, in fresh interpreters."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OURS = ROOT / "slime_profiler_plugin" / "attach" / "autoload"
SITECUSTOMIZE = (OURS / "sitecustomize.py").read_text()
LOOK = """
import json, sys, threading
print(json.dumps({
    "ours": sorted(m for m in sys.modules if m.startswith("slime_profiler_plugin")),
    "finders": [type(f).__name__ for f in sys.meta_path if type(f).__module__ == "sitecustomize"
                or type(f).__module__.startswith("slime_profiler_plugin")],
    "threads": threading.active_count(),
    "argv": sys.argv[1:],
    "site": getattr(sys.modules.get("sitecustomize"), "__file__", None),
    "modules": len(sys.modules),
}))
"""


def run(code, *arguments, path=(OURS, ROOT), cwd=None, **environ):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLIME_", "PYTHON"))}
    joined = os.pathsep.join(map(str, path))
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**kept, "PYTHONPATH": joined, **environ},
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )


def look(*arguments, **options):
    done = run(LOOK, *arguments, **options)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_without_a_switch_nothing_of_ours_is_there_but_what_waits_for_slimes_arguments(tmp_path):
    absent = look(path=(ROOT,), cwd=tmp_path)
    present = look(cwd=tmp_path)
    assert (present["ours"], present["threads"]) == ([], 1)
    assert present["finders"] == ["_WaitsForArguments"]
    # sitecustomize itself, where the machine has none of its own
    assert present["modules"] <= absent["modules"] + 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", ["off", "OFF", "0", "no"])
def test_off_leaves_not_even_that(word, tmp_path):
    found = look("--communication-timeline", cwd=tmp_path, SLIME_PROFILER=word)
    assert (found["ours"], found["finders"], found["argv"]) == ([], [], [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        ((), {"SLIME_PROFILER": "timeline"}),
        ((), {"SLIME_COMMUNICATION_TIMELINE": "1"}),
        (("--communication-timeline",), {}),
        (("--communication-timeline",), {"SLIME_COMMUNICATION_TIMELINE": ""}),
        (("--communication-timeline",), {"SLIME_COMMUNICATION_TIMELINE": "0", "SLIME_PROFILER": " "}),
    ],
)
def test_each_switch_attaches_and_writes_nothing_by_itself(arguments, environ, tmp_path):
    found = look("--lr", *arguments, "1", cwd=tmp_path, **environ)
    assert "slime_profiler_plugin.attach._frameworks" in found["ours"]
    assert (found["finders"], found["argv"], found["threads"]) == (["_Finder"], ["--lr", "1"], 1)
    assert list(tmp_path.iterdir()) == []


def test_attaching_loads_no_more_than_waiting_takes(tmp_path):
    code = "import sys; print(sorted({'msgspec', 'yaml', 'subprocess', 'asyncio'} & set(sys.modules)))"
    done = run(code, cwd=tmp_path, SLIME_PROFILER="timeline")
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert "slime_profiler_plugin.record" not in look(cwd=tmp_path, SLIME_PROFILER="timeline")["ours"]


def test_the_flag_reaches_children(tmp_path):
    code = (
        "import subprocess, sys\n"
        "print(subprocess.run([sys.executable, '-c', 'import os, sys; "
        'print(os.environ["SLIME_COMMUNICATION_TIMELINE"], "slime_profiler_plugin" in sys.modules)\'],'
        " capture_output=True, text=True).stdout)"
    )
    assert run(code, "--communication-timeline", cwd=tmp_path).stdout.split() == ["1", "True"]


def test_another_sitecustomize_is_run_and_stands_for_itself(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.was_here = __file__\n")
    found = look(path=(OURS, tmp_path, ROOT))
    assert found["site"] == str(tmp_path / "sitecustomize.py")
    code = "print(was_here)"
    assert run(code, path=(OURS, tmp_path, ROOT)).stdout.strip() == str(tmp_path / "sitecustomize.py")


#: As ours does it, and others: all of the path but its own folder.
CHAINING = """
import builtins, os, sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

builtins.turns = [*getattr(builtins, "turns", []), os.path.basename(os.path.dirname(__file__))]
here = os.path.dirname(__file__)
spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if path != here])
if spec is not None:
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)
"""
NOTING = "import builtins\nbuiltins.turns = [*getattr(builtins, 'turns', []), 'last']\n"


@pytest.mark.parametrize("switch", ["", "timeline"])
@pytest.mark.parametrize(
    ("folders", "turns"),
    [
        (("ours", "copy", "link", "last"), ["last"]),
        (("copy", "ours", "last"), ["last"]),
        (("chaining", "ours"), ["chaining"]),
        (("ours", "chaining"), ["chaining"]),
        (("ours", "chaining", "copy"), ["chaining"]),
        (("ours", "copy"), None),
    ],
)
def test_each_sitecustomize_has_one_turn_whatever_chains_to_what(folders, turns, switch, tmp_path):
    for name, text in (("chaining", CHAINING), ("last", NOTING), ("copy", SITECUSTOMIZE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sitecustomize.py").write_text(text)
    (tmp_path / "link").symlink_to(OURS)
    path = [OURS if name == "ours" else tmp_path / name for name in folders]
    code = (
        "import builtins, json, sys\n"
        "finders = [f for f in sys.meta_path if type(f).__name__ in ('_Finder', '_WaitsForArguments')]\n"
        "print(json.dumps([getattr(builtins, 'turns', None), len(finders),"
        " [name for name in vars(sys) if 'slime' in name]]))"
    )
    done = run(code, path=(*path, ROOT), cwd=tmp_path, SLIME_PROFILER=switch)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [turns, 1, []]


@pytest.mark.parametrize("switch", ["", "timeline"])
def test_a_path_that_others_filled_with_anything_is_no_failure_of_ours(switch, tmp_path):
    # as a .pth file may do before sitecustomize is loaded
    code = (
        "import runpy, sys\nsys.path[:0] = [None, b'/x', 7]\n"
        f"runpy.run_path({str(OURS / 'sitecustomize.py')!r}, run_name='sitecustomize')\n"
        "print(sys.path[:3], 'slime_profiler_plugin' in sys.modules)"
    )
    done = run(code, path=(ROOT,), cwd=tmp_path, SLIME_PROFILER=switch)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"[None, b'/x', 7] {bool(switch)}\n"


def test_the_current_folder_is_not_searched_where_a_node_has_no_path_of_its_own(tmp_path):
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('of the current folder')\n")
    code = (
        "import os, subprocess, sys\n"
        "sys.path.remove('')\n"  # that of python -c
        "import colorsys\nprint(os.environ['PYTHONPATH'])\n"
        "print(subprocess.run([sys.executable, '-c', 'import os; print(os.environ[\"PYTHONPATH\"])'],"
        " capture_output=True, text=True).stdout)"
    )
    # as Ray makes it of `add_to_runtime_env`, and of that with a working_dir
    for before in ((), (tmp_path / "working_dir",)):
        done = run(code, path=(*before, OURS, ""), cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.split() == [os.pathsep.join(map(str, (*before, OURS)))] * 2
    theirs = run("import os; print(os.environ['PYTHONPATH'])", path=("", OURS, "/a", ""), cwd=tmp_path)
    assert theirs.stdout == f":{OURS}:/a:\n"


def test_what_another_sitecustomize_raises_is_told_by_python_and_we_are_attached(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('theirs')\n")
    code = "import sys; print('slime_profiler_plugin.attach' in sys.modules)"
    done = run(code, path=(OURS, tmp_path, ROOT), SLIME_PROFILER="timeline")
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert "RuntimeError: theirs" in done.stderr


def test_an_absent_folder_and_a_package_that_cannot_be_imported_harm_nothing(tmp_path):
    gone = run("print(1)", path=(tmp_path / "gone", ROOT), SLIME_PROFILER="timeline")
    assert (gone.returncode, gone.stdout, gone.stderr) == (0, "1\n", "")
    (tmp_path / "slime_profiler_plugin").mkdir()
    (tmp_path / "slime_profiler_plugin" / "__init__.py").write_text("raise RuntimeError('broken')\n")
    broken = run("print(1)", path=(OURS, tmp_path), SLIME_PROFILER="timeline")
    assert (broken.returncode, broken.stdout, broken.stderr) == (0, "1\n", "")


#: The finder behind ours alone knows slime, as that of an editable installation does.
EDITABLE = """
import importlib.util, sys, types
class Editable:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "slime.utils.arguments":
            return importlib.util.spec_from_file_location(name, {file!r})
sys.meta_path.insert(1, Editable)
for name in ("slime", "slime.utils"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
import slime.utils.arguments
print([type(f).__name__ for f in sys.meta_path if type(f).__module__ == "sitecustomize"])
"""


@pytest.mark.parametrize("is_broken", [True, False])
def test_slime_is_found_by_whoever_finds_it_also_where_our_package_is_broken(is_broken, tmp_path):
    (tmp_path / "arguments.py").write_text("def parse_args(): pass\n")
    (tmp_path / "slime_profiler_plugin").mkdir()
    (tmp_path / "slime_profiler_plugin" / "__init__.py").write_text("raise RuntimeError('broken')\n")
    code = EDITABLE.format(file=str(tmp_path / "arguments.py"))
    done = run(code, path=(OURS, tmp_path if is_broken else ROOT), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


SLIME = """
class Arguments:
    pass

def parse_args(add_custom_arguments=None):
    found = Arguments()
    {line}
    return found
"""


@pytest.mark.parametrize(
    ("line", "switch"),
    [
        ("found.communication_timeline = True", "timeline"),
        ("found.communication_timeline = 'kernels'", "kernels"),
        ("found.communication_timeline = False", None),
        ("pass", None),
    ],
)
def test_slimes_arguments_switch_on_or_leave_nothing(line, switch, tmp_path):
    # a stand-in for slime's module of arguments
    package = tmp_path / "slime" / "utils"
    package.mkdir(parents=True)
    (tmp_path / "slime" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "arguments.py").write_text(SLIME.format(line=line))
    code = (
        "import os, sys\nimport slime.utils.arguments as a\nfound = a.parse_args()\n"
        "print(os.environ.get('SLIME_PROFILER'), vars(found))\n"
        "print([type(f).__name__ for f in sys.meta_path if 'slime' in type(f).__module__ "
        "or type(f).__module__ == 'sitecustomize'])"
    )
    # set to nothing is not set
    done = run(code, path=(OURS, tmp_path, ROOT), cwd=tmp_path, SLIME_PROFILER="")
    assert (done.returncode, done.stderr) == (0, "")
    said, finders = done.stdout.splitlines()
    assert said.split(" ")[0] == (switch or "")
    assert finders == ("['_Finder']" if switch else "[]")
