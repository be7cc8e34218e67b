"""What lies in the folders of a run; what cannot be looked at is told, never passed over."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from ._damage import Damage

#: A ``run.json`` is a few hundred bytes; more than this is none.
_LARGEST_RUN_FILE: Final = 1 << 20


def list_entries(folder: Path, damage: list[Damage]) -> list[Path]:
    """What is in `folder`, by name; nothing where there is no such folder.

    A folder that cannot be read is added to `damage` as refused.
    """
    try:
        return sorted(folder / name for name in os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        damage.append(refuse(folder, error))
        return []


def list_sources(folder: Path, damage: list[Damage]) -> Iterator[Path]:
    """What is in the folders inside `folder`, by name, as `list_entries` does."""
    for inner in list_entries(folder, damage):
        yield from list_entries(inner, damage)


def may_be_file(path: Path) -> bool:
    """Whether `path` is a file, or cannot be looked at: then reading it says why."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def can_open(path: Path, damage: list[Damage]) -> bool:
    """Whether the file at `path` can be read, or has another name now; else it is added to `damage`."""
    try:
        path.open("rb").close()
    except FileNotFoundError:
        return True
    except OSError as error:
        damage.append(refuse(path, error))
        return False
    return True


def has_mode(path: Path, test: int) -> bool:
    """Whether there is something of type `test` (`stat.S_IFREG`, …) at `path`.

    Raises `OSError` where that cannot be known; `Path.is_file` says no on newer Pythons.
    """
    try:
        return stat.S_IFMT(os.stat(path).st_mode) == test
    except (FileNotFoundError, NotADirectoryError):
        return False


def read_run_file(path: Path, damage: list[Damage]) -> dict[str, object]:
    """What ``run.json`` says; nothing where there is none.

    One that cannot be used is added to `damage`.
    """
    try:
        # Without O_NONBLOCK, a pipe of that name would keep us waiting for ever.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                damage.append(Damage(str(path), "refused", "not a file"))
                return {}
            text = stream.read(_LARGEST_RUN_FILE)
    except FileNotFoundError:
        return {}
    except OSError as error:
        damage.append(refuse(path, error))
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        damage.append(Damage(str(path), "corrupt", f"not a JSON object: {error}"))
        return {}


def refuse(path: Path, error: OSError) -> Damage:
    """What `error` says of `path`."""
    return Damage(str(path), "refused", error.strerror or str(error))
