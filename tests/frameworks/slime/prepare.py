"""What `make slime` needs of this machine: a checkout of slime, and the Megatron that it pins.

``prepare.py check`` ends with a message where one is missing. ``prepare.py megatron FOLDER`` lays out the
pinned Megatron with slime's own patch applied; nothing is fetched from a network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SLIME, MEGATRON = "SLIME_CHECKOUT", "MEGATRON_CHECKOUT"
#: The commit that the tests know. Another may well work: the tests then say what is different.
KNOWN_SLIME = "624b824a898ab0ec1fcb4d373004c7f3852bf515"
_PIN = re.compile(r"^ARG MEGATRON_COMMIT=([0-9a-f]{40})$", re.MULTILINE)


class MissingError(Exception):
    """What is not there, and what to do about it."""


def find_slime(environ: dict[str, str] | os._Environ[str] = os.environ) -> Path:
    """The checkout of slime. Raises `MissingError`."""
    named = environ.get(SLIME, "")
    if not named:
        raise MissingError(
            f"{SLIME} is not set: name a checkout of slime, for example one made with "
            f"`git clone https://github.com/THUDM/slime` at commit {KNOWN_SLIME[:9]}"
        )
    folder = Path(named)
    for file in ("train.py", "slime/ray/actor_group.py", "docker/Dockerfile"):
        if not (folder / file).is_file():
            raise MissingError(f"{SLIME}={named} is no checkout of slime: it has no {file}")
    return folder.resolve()


def pinned_megatron(slime: Path) -> str:
    """The commit that slime's image is built from. Raises `MissingError`."""
    found = _PIN.search((slime / "docker" / "Dockerfile").read_text())
    if found is None:
        raise MissingError(f"{slime}/docker/Dockerfile names no MEGATRON_COMMIT")
    return found[1]


def find_megatron(commit: str, environ: dict[str, str] | os._Environ[str] = os.environ) -> Path:
    """A repository, bare or not, that holds `commit`. Raises `MissingError`."""
    named = environ.get(MEGATRON, "")
    if not named:
        raise MissingError(
            f"{MEGATRON} is not set: name a clone of Megatron-LM, bare or not, that holds commit "
            f"{commit}, which slime pins"
        )
    held = subprocess.run(
        ["git", "-C", named, "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True, check=False
    )
    if held.returncode != 0:
        raise MissingError(
            f"{MEGATRON}={named} is no repository that holds commit {commit}, which slime pins"
        )
    return Path(named)


def lay_out(target: Path) -> None:
    """The pinned Megatron below `target`, patched as slime's image has it, unless it is there already."""
    slime = find_slime()
    commit = pinned_megatron(slime)
    ready = target / ".ready"
    if ready.is_file() and ready.read_text() == commit:
        return
    megatron = find_megatron(commit)
    patch = slime / "docker" / "patch" / "latest" / "megatron.patch"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "-C", str(megatron), "archive", commit, "megatron"], capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(target)], input=archive.stdout, check=True)
    with patch.open("rb") as text:
        done = subprocess.run(["patch", "-s", "-p1"], cwd=target, stdin=text, check=False)
    if done.returncode != 0:
        raise MissingError(f"{patch} does not apply to Megatron {commit}")
    ready.write_text(commit)


def main() -> None:
    """The verb of the command line; a missing thing becomes the exit message."""
    try:
        if sys.argv[1:] == ["check"]:
            find_megatron(pinned_megatron(find_slime()))
        elif sys.argv[1:2] == ["megatron"]:
            lay_out(Path(sys.argv[2]))
        else:
            sys.exit("usage: prepare.py check | megatron FOLDER")
    except MissingError as missing:
        sys.exit(f"make slime: {missing}")


if __name__ == "__main__":
    main()
