"""A real SGLang engine with slime's own patches pulls what a trainer has published: `engine_pull`.

The patches are those of the checkout that SLIME_CHECKOUT names, on a copy of the installed package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import engines
import pytest
from command_line import run
from merged_trace import events_of
from recordings import Recording, read_file, record_files

pytestmark = [pytest.mark.sglang, pytest.mark.full, pytest.mark.timeout(1800)]

RUN = "pulls"
SIZE = 2
#: Those of them that change what runs here, in the order in which slime's image takes them.
PATCHES = ("sglang.patch", "sglang-top_p.patch", "sglang-release_hicache.patch", "sglang-pull_weights.patch")


def find_patches() -> list[Path]:
    """Of the pinned version; skips where there are none."""
    checkout = os.environ.get("SLIME_CHECKOUT")
    if not checkout:
        pytest.skip("SLIME_CHECKOUT names no checkout of slime")
    folder = Path(checkout) / "docker" / "patch" / f"v{engines.PINNED.version}"
    found = [folder / name for name in PATCHES]
    if not all(path.is_file() for path in found):
        pytest.skip(f"no patches for SGLang {engines.PINNED.version} in the checkout")
    return [path.resolve() for path in found]


def patch_package(python: Path, folder: Path, patches: list[Path]) -> None:
    """A copy of the installed SGLang in `folder`, patched. Files that git changes it makes anew."""
    folder.mkdir()
    (installed,) = (python.parents[1] / "lib").glob("python3*/site-packages/sglang")
    shutil.copytree(
        installed, folder / "sglang", copy_function=link_file, ignore=shutil.ignore_patterns("__pycache__")
    )
    for patch in patches:
        # Elsewhere git would look for the repository around the folder, and find nothing to patch in it.
        environ = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
        command = ["git", "apply", "-p2", str(patch)]
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def link_file(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # of another file system
        shutil.copy2(source, target)


@pytest.fixture(scope="module")
def seen(tmp_path_factory, models):
    patches = find_patches()
    edition = engines.PINNED
    python = engines.find_python(edition)
    folder = tmp_path_factory.mktemp("pull")
    patch_package(python, folder / "patched", patches)
    engines.install_entry_point(folder / "installed")
    config = folder / "config.yaml"
    config.write_text(f"out: {folder / 'runs'}\n")
    environ = engines.engine_environment(
        edition,
        folder,
        SLIME_PROFILER=str(config),
        SLIME_PROFILER_RUN_ID=RUN,
        SLIME_PROFILER_LAUNCH="once",
        SLIME_PROFILER_ENGINE_INDEX="0",
    )
    environ["PYTHONPATH"] = os.pathsep.join([str(folder / "patched"), environ["PYTHONPATH"]])
    shutil.copytree(models(python), folder, dirs_exist_ok=True)
    with engines.engine(edition, python, folder / "a", SIZE, folder / "engine.log", environ) as url:
        told = engines.run_trainer(python, folder, environ, "publisher.py", url, str(folder))
    merged = run("merge", folder / "runs" / RUN, "--rollout", "all")
    assert merged.exit_code == 0, merged.output
    return SimpleNamespace(folder=folder, run=folder / "runs" / RUN, told=told)


def engine_recordings(seen: Any) -> list[Recording]:
    found = [Recording(read_file(path)) for path in record_files(seen.folder / "runs")]
    chosen = [recording for recording in found if recording.lines[0].role == "engine"]
    assert len(chosen) == SIZE
    return chosen


def test_the_engine_has_the_weights_that_were_published(seen):
    told = seen.told
    assert [told[f"{what} {number}"] for what in ("load",) for number in (1, 2)] == [200, 200]
    assert [told[f"pull {number}"][0] for number in (1, 2)] == [200, 200]
    (first, _), (second, _) = told["after 1"], told["after 2"]
    assert first != told["first"]
    assert second == told["first"]
    assert [told[f"after {number}"][1] for number in (1, 2)] == ["1", "2"]
    assert told["missing"] == 400


def test_every_rank_pulls_and_then_loads(seen):
    for recording in engine_recordings(seen):
        phases = sorted(recording.phases, key=lambda phase: phase.start_ns)
        assert [(phase.name, phase.weight_version, phase.error) for phase in phases] == [
            *((name, "1", None) for name in ("engine_pull", "engine_load", "engine_flush")),
            *((name, "2", None) for name in ("engine_pull", "engine_load", "engine_flush")),
            ("engine_pull", "9", None),
        ]
        assert recording.drops == []


def test_arrows_lead_from_what_is_published_to_every_rank(seen):
    for rollout in (1, 2):
        events = events_of(seen.run / "merged" / f"rollout_{rollout:06d}.trace.json.gz")
        heads = [event for event in events if event["ph"] == "f" and event.get("cat") == "weight_sync"]
        assert Counter(event["name"] for event in heads) == {"delta": SIZE}
