"""Documentation that would rot silently: references, links between pages, and examples, which are run."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from recordings import environment, read_file, record_files

from slime_profiler_plugin import schema, timeline
from slime_profiler_plugin.merge import merge_run
from slime_profiler_plugin.read import ProcessRecords, read_run

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("**/*.md"))]
REFERENCE = (ROOT / "docs" / "record-files.md").read_text()


def _section(kind: str) -> str:
    for section in re.split(r"^## ", REFERENCE, flags=re.MULTILINE):
        if f"`{kind}`" in section.partition("\n")[0]:
            return section
    raise AssertionError(f"no section for {kind}")


@pytest.mark.parametrize("line", schema.Line.__args__)
def test_every_field_of_every_line_is_described(line):
    section = _section(line.__struct_config__.tag)
    described = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\|([^|]*)\|", section, re.MULTILINE))))
    assert {field.name for field in msgspec.structs.fields(line)} <= described


def test_reference_names_the_version_it_describes():
    assert REFERENCE.startswith(f"# Record files, version {schema.VERSION_TEXT}\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def _blocks(page: str, language: str = "python") -> str:
    """The code of a page, one block after the other."""
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S))


def _run(folder: Path, *command: str, **environ: str) -> str:
    """What a command prints in `folder`. It must succeed, and warn of nothing."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(**environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    """Of records only: whether nvtx is installed is no matter here."""
    path = tmp_path / "records.yaml"
    path.write_text("outputs: {nvtx: false}\n")
    return path


def test_the_readme_s_program_records_what_it_says(tmp_path: Path, configuration: Path) -> None:
    (tmp_path / "train.py").write_text(_blocks("README.md"))
    (commands,) = re.findall(r"^```\n(export .*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert "SLIME_PROFILER=timeline " in commands
    commands = commands.replace("=timeline ", f"={configuration} ")
    shell = 'python() { "$PYTHON" "$@"; }; slime-profiler() { python -m slime_profiler_plugin.cli "$@"; }\n'
    printed = _run(tmp_path, "bash", "-ec", shell + commands, PYTHON=sys.executable)
    assert "rollout_000002.trace.json.gz" in printed
    assert "2 arrows from bucket_send to engine_receive" in printed

    actor, engine = sorted(read_run([tmp_path / "runs" / "first"]).processes, key=_role)
    phases = {phase.id: phase for phase in actor.phases()}
    inside = [(p.name, phases[p.parent].name if p.parent else None, p.rollout) for p in phases.values()]
    a_rollout = {
        ("train_step", None): 2,
        ("forward_backward", "train_step"): 2,
        ("optimizer", "train_step"): 2,
        ("weight_sync", None): 1,
        ("bucket_send", "weight_sync"): 2,
    }
    expected = [(*key, r) for r in range(3) for key, count in a_rollout.items() for _ in range(count)]
    assert sorted(inside, key=str) == sorted(expected, key=str)
    sent = [_bucket(phase) for phase in phases.values() if phase.name == "bucket_send"]
    assert sent == [_bucket(phase) for phase in engine.phases()]
    assert [(bucket["sync"], bucket["bucket"], bucket["bytes"], bucket["tensors"]) for bucket in sent] == [
        (sync, *bucket) for sync in range(3) for bucket in ((0, 7, 1), (1, 11, 2))
    ]
    assert {bucket["source"] for bucket in sent} == {actor.source}
    outputs = merge_run([tmp_path / "runs" / "first"], "all", tmp_path).outputs
    assert [(output.arrows, output.arrows_not_drawn) for output in outputs] == [(2, {})] * 3


def _role(records: ProcessRecords) -> str:
    return records.process.role or ""


def _bucket(phase: schema.Phase) -> dict[str, object]:
    names = ("sync", "bucket", "bytes", "tensors", "transport", "source", "weight_version")
    return {name: getattr(phase, name) for name in names}


def test_the_readme_exports_windows_after_the_weight_sync() -> None:
    """What comes after `export_window` is in no window."""
    program = _blocks("README.md")
    assert program.index('"weight_sync"') < program.index("bucket_send") < program.index("export_window")


@pytest.mark.parametrize("page", ["README.md", "docs/timeline.md", "docs/phases.md"])
def test_examples_run_off_and_leave_nothing(tmp_path: Path, page: str) -> None:
    (tmp_path / "example.py").write_text(_blocks(page))
    _run(tmp_path, sys.executable, "example.py")
    assert [path.name for path in tmp_path.iterdir()] == ["example.py"]


def test_the_timeline_s_examples_record(tmp_path: Path, configuration: Path) -> None:
    assert _run(
        tmp_path, sys.executable, "-c", _blocks("docs/timeline.md"), SLIME_PROFILER=str(configuration)
    )
    (path,) = record_files(tmp_path / "runs")
    lines = read_file(path)
    assert not [line for line in lines if isinstance(line, schema.Drop)]
    phases = [line for line in lines if isinstance(line, schema.Phase)]
    (span,) = [phase for phase in phases if phase.name == "generate"]
    assert span.attrs == {"samples": 64, "tokens": 9000}
    assert [phase.parent for phase in phases if phase.name == "reward"] == [None, span.id, None]
    assert [line.name for line in lines if isinstance(line, schema.Mark)] == ["checkpoint_found"]


def test_the_examples_of_runs_find_one(tmp_path: Path, configuration: Path) -> None:
    program = _blocks("docs/runs.md") + '\ntimeline.mark("here")\n'  # a file begins with its first record
    _run(tmp_path, sys.executable, "-c", program, SLIME_PROFILER=str(configuration))
    ((process, *_),) = map(read_file, record_files(tmp_path / "runs"))
    assert (process.role, process.rank, process.world_size, process.attempt) == ("actor", 0, 6, 0)
    assert [path.name for path in (tmp_path / "runs").glob("*/attempt-*")] == ["attempt-000.json"]


def test_every_call_and_column_is_on_the_page_of_the_timeline() -> None:
    page = (ROOT / "docs" / "timeline.md").read_text()
    calls = [name for name in dir(timeline) if not name.startswith("_")]
    assert [name for name in calls if not re.search(rf"timeline\.{name}\b|`{name}\(", page)] == []
    kept_by_itself = {"id", "name", "start_ns", "dur_ns", "tid", "task", "parent", "rollout", "attrs"}
    fields = {field.name for field in msgspec.structs.fields(schema.Phase)} - kept_by_itself
    assert fields <= set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\|([^|]+)\|", page, re.M))))


def test_the_page_of_phases_is_that_of_the_module() -> None:
    update = runpy.run_path(str(ROOT / "docs" / "update_phases.py"))
    page = update["PAGE"].read_text()
    assert page == update["updated"](page), "python docs/update_phases.py"


@pytest.mark.parametrize(
    "picture", sorted((ROOT / "docs" / "pictures").iterdir()), ids=lambda path: path.name
)
def test_pictures_are_small_and_of_the_readme(picture: Path) -> None:
    assert f"](docs/pictures/{picture.name})" in (ROOT / "README.md").read_text()
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(content) < 300_000
