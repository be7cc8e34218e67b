"""What `make slime` says when something is missing, and what it lays out."""

from __future__ import annotations

import os
import shutil
import subprocess

import prepare
import pytest
from recordings import ROOT

PATCH = """\
--- a/megatron/name.py
+++ b/megatron/name.py
@@ -1 +1 @@
-NAME = "as released"
+NAME = "patched"
"""


@pytest.fixture
def checkouts(tmp_path, monkeypatch):
    """A slime and a Megatron of a few lines; gives the commit that the first pins."""
    for program in ("git", "patch", "tar"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    megatron, slime = tmp_path / "megatron-lm", tmp_path / "slime"
    (megatron / "megatron").mkdir(parents=True)
    (megatron / "megatron" / "name.py").write_text('NAME = "as released"\n')
    git = ["git", "-C", str(megatron), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    for name, text in {
        "train.py": "",
        "slime/ray/actor_group.py": "",
        "docker/Dockerfile": f"ARG OTHER=1\nARG MEGATRON_COMMIT={commit}\n",
        "docker/patch/latest/megatron.patch": PATCH,
    }.items():
        (slime / name).parent.mkdir(parents=True, exist_ok=True)
        (slime / name).write_text(text)
    monkeypatch.setenv(prepare.SLIME, str(slime))
    monkeypatch.setenv(prepare.MEGATRON, str(megatron))
    return commit


def test_make_slime_fails_without_a_checkout():
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    environ = {name: value for name, value in os.environ.items() if name != prepare.SLIME}
    done = subprocess.run(
        ["make", "slime"], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "SLIME_CHECKOUT is not set: name a checkout of slime" in done.stderr


@pytest.mark.usefixtures("checkouts")
def test_a_folder_that_is_no_checkout_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv(prepare.SLIME, str(tmp_path))
    with pytest.raises(prepare.MissingError, match=r"is no checkout of slime: it has no train\.py"):
        prepare.find_slime()


def test_a_megatron_that_is_missing_is_named(checkouts, monkeypatch):
    commit = prepare.pinned_megatron(prepare.find_slime())
    assert commit == checkouts
    assert prepare.find_megatron(commit).name == "megatron-lm"
    with pytest.raises(prepare.MissingError, match=r"no repository that holds commit 0{40}"):
        prepare.find_megatron("0" * 40)
    monkeypatch.delenv(prepare.MEGATRON)
    with pytest.raises(prepare.MissingError, match="MEGATRON_CHECKOUT is not set"):
        prepare.find_megatron(commit)


def test_the_pinned_megatron_is_laid_out_patched(checkouts, tmp_path):
    target = tmp_path / "laid"
    prepare.lay_out(target)
    assert (target / "megatron" / "name.py").read_text() == 'NAME = "patched"\n'
    assert (target / ".ready").read_text() == checkouts
    (target / "megatron" / "name.py").write_text("kept")
    prepare.lay_out(target)  # is there already
    assert (target / "megatron" / "name.py").read_text() == "kept"


@pytest.mark.usefixtures("checkouts")
def test_a_patch_that_does_not_apply_is_named(tmp_path):
    patch = prepare.find_slime() / "docker" / "patch" / "latest" / "megatron.patch"
    patch.write_text(PATCH.replace("as released", "another"))
    with pytest.raises(prepare.MissingError, match="does not apply"):
        prepare.lay_out(tmp_path / "laid")
    assert not (tmp_path / "laid" / ".ready").exists()
