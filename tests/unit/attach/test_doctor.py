"""The doctor's findings, over stand-ins for frameworks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slime_profiler_plugin.attach import _doctor, examine, format_findings
from slime_profiler_plugin.attach._environment import AUTOLOAD_FOLDER
from slime_profiler_plugin.attach._targets import Target

ROOT = Path(__file__).resolve().parents[3]
TARGETS = (
    Target("json", "json.decoder", "JSONDecoder.decode", ("self", "s"), ("reading",)),
    Target("json", "json.decoder", "JSONDecoder.gone", None, ("going", "leaving")),
    Target("json", "json.encoder", "JSONEncoder.encode", ("o", "self"), ("writing",)),
    Target("json", "json.encoder", "newer", None, ("the newest",), optional=True),
    Target("no_such_framework", "no_such_framework.core", "f", None, ("nothing",)),
)


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(_doctor, "targets", lambda: TARGETS)


@pytest.mark.usefixtures("few")
def test_each_target_has_its_status_and_what_is_lost():
    findings = examine({})
    assert [state.status for state in findings.states] == [
        "attached",
        "missing",
        "changed",
        "missing",
        "absent",
    ]
    assert findings.versions == {"json": "of unknown version", "no_such_framework": None}
    assert [state.target.name for state in findings.faults] == ["JSONDecoder.gone", "JSONEncoder.encode"]
    assert not findings.is_whole
    text = "\n".join(format_findings(findings))
    assert "json of unknown version: 1 of 4 targets as expected" in text
    assert "missing: json.decoder.JSONDecoder.gone" in text
    assert "lost: going, leaving" in text
    assert "changed: json.encoder.JSONEncoder.encode: takes (self, o), not o, self" in text
    assert "not in this version: json.encoder.newer" in text
    assert "no_such_framework: not installed" in text
    assert "not seen from here: an actor whose own env_vars set PYTHONPATH" in text
    assert json.loads(json.dumps(findings.public()))["targets"][1]["status"] == "missing"


@pytest.mark.parametrize(
    ("path", "is_first"),
    [(None, None), ("/a", None), (f"{AUTOLOAD_FOLDER}:/a", True), (f"/a:{AUTOLOAD_FOLDER}", False)],
)
@pytest.mark.usefixtures("few")
def test_where_the_folder_stands(path, is_first):
    environ = {"SLIME_PROFILER": "timeline"} | ({"PYTHONPATH": path} if path else {})
    findings = examine(environ)
    assert (findings.switch, findings.is_first) == ("timeline", is_first)


def test_the_verb():
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "slime_profiler_plugin.cli", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert set(found) == {"frameworks", "autoload", "engine_windows", "targets"}
    assert found["frameworks"]["torch"]
    torch = [target for target in found["targets"] if target["framework"] == "torch"]
    assert [target["status"] for target in torch] == ["attached"] * len(torch)


#: Run as the verb is, over frameworks that are not at rest while they are imported.
RESTLESS = """
from slime_profiler_plugin.attach import _doctor
from slime_profiler_plugin.attach._targets import Target
from slime_profiler_plugin.cli import main
_doctor.targets = lambda: tuple(Target(name, name, "f", None, ("x",)) for name in ("loud", "leaving"))
main(["doctor", "--json"])
"""


def test_what_a_framework_prints_or_wants_to_leave_does_not_spoil_the_answer(tmp_path):
    (tmp_path / "loud.py").write_text("import os\nprint('loud')\nos.write(1, b'louder\\n')\ndef f(): pass\n")
    (tmp_path / "leaving.py").write_text("raise SystemExit(9)\n")
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    done = subprocess.run(
        [sys.executable, "-c", RESTLESS],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert [target["status"] for target in json.loads(done.stdout)["targets"]] == ["attached", "missing"]
    assert sorted(done.stderr.split()) == ["loud", "louder"]
