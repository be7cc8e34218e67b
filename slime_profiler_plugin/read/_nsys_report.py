"""An ``.nsys-rep`` report, which only ``nsys`` itself can read: exported into a folder of our own."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from ._nsys_database import first_bytes
from .kineto import TraceRefusedError

_MAGIC: Final = b"NVIDIA Tegra Profiler Report"
_SUFFIX: Final = ".nsys-rep"
#: Large reports take minutes.
_EXPORT_S: Final = 1800.0
_LONGEST_WORDS: Final = 500

#: Folders of this process's exports, by the report as it was: path, size and time of its last change.
_exported: Final[dict[tuple[str, int, int], Path]] = {}


def is_nsys_report(path: Path) -> bool:
    """Whether `path` is a report of Nsight Systems, by its first bytes, else by its name.

    Raises `ReadError` when it cannot be read.
    """
    return first_bytes(path, len(_MAGIC)) == _MAGIC or path.suffix == _SUFFIX


def export_report(path: Path) -> Path:
    """The SQLite export of a report, made once per process and removed when the process ends.

    Raises `TraceRefusedError` where ``nsys`` is not installed, fails, or takes longer than half an hour.
    """
    state = path.stat()
    key = (str(path.resolve()), state.st_size, state.st_mtime_ns)
    known = _exported.get(key)
    if known is not None:
        return known
    nsys = shutil.which("nsys")
    if nsys is None:
        raise TraceRefusedError(
            f"{path}: only Nsight Systems can read its own report, and there is no nsys on the PATH; "
            f"install it, or export the report where it is: nsys export --type sqlite {path.name}"
        )
    try:
        folder = Path(tempfile.mkdtemp(prefix="slime-profiler-nsys-"))
        atexit.register(_remove, folder, os.getpid())
        exported = folder / f"{path.stem}.sqlite"
        failed = _run([nsys, "export", "--type=sqlite", f"--output={exported}", str(path.absolute())], folder)
    except OSError as error:
        raise TraceRefusedError(f"{path}: nsys export cannot be run: {error}") from error
    if failed is None and not exported.is_file():
        failed = "it made nothing of it"
    if failed is not None:
        _remove(folder, os.getpid())
        raise TraceRefusedError(f"{path}: nsys export: {failed}")
    _exported[key] = exported
    return exported


def _run(command: list[str], folder: Path) -> str | None:
    """Why the command failed; ``None``: it did not. It is ended, with its children, when it takes too long.

    Its words go into a file: a daemon that it leaves behind would hold the end of a pipe.
    """
    words = folder / "said"
    with words.open("wb") as said:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(_EXPORT_S)
        except subprocess.TimeoutExpired:
            return f"it had not ended after {_EXPORT_S:.0f} s"
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if status == 0:
        return None
    text = " ".join(words.read_text(encoding="utf-8", errors="replace").split())
    return f"status {status}: {text[-_LONGEST_WORDS:]}"


def _remove(folder: Path, owner: int) -> None:
    """A forked child has the exit handler, too, and not the folder."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
