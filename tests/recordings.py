"""Reading back what a process recorded, and programs to record."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, TypeVar

from slime_profiler_plugin import schema, timeline
from slime_profiler_plugin.layout import RECORD_FILE

L = TypeVar("L")
ROOT = Path(__file__).resolve().parents[1]


class Recording:
    """The lines of one process, of all its segments in order."""

    def __init__(self, lines: list[Any]) -> None:
        self.lines = lines

    def all(self, kind: type[L]) -> list[L]:
        return [line for line in self.lines if type(line) is kind]

    @property
    def phases(self) -> list[schema.Phase]:
        return self.all(schema.Phase)

    def one(self, name: str) -> schema.Phase:
        (phase,) = [p for p in self.phases if p.name == name]
        return phase

    def parent_names(self) -> dict[str, str | None]:
        """Name of each phase's parent, by the phase's name."""
        by_id = {p.id: p.name for p in self.phases}
        return {p.name: None if p.parent is None else by_id[p.parent] for p in self.phases}

    @property
    def drops(self) -> list[schema.Drop]:
        return self.all(schema.Drop)

    @property
    def end(self) -> schema.End:
        (end,) = self.all(schema.End)
        assert self.lines[-1] is end
        return end

    def check_counts(self) -> None:
        """The `End` line says what is in the file."""
        counts = Counter(str(line.__struct_config__.tag) for line in self.lines[:-1])
        dropped = sum(drop.count for drop in self.drops)
        assert self.end.counts == {**counts, "dropped": dropped}


def record_files(out: Path) -> list[Path]:
    """All record files below `out`, rotated segments first."""
    files = [p for p in out.glob("*/records/*/*") if RECORD_FILE.fullmatch(p.name)]
    return sorted(
        files,
        key=lambda p: (p.name.split(".")[0], p.name[-6:] == ".jsonl" and p.name.count(".") == 1, p.name),
    )


def read_file(path: Path) -> list[Any]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert raw.endswith(b"\n"), "the last line is not whole"
    lines = []
    for text in raw.splitlines():
        line, unknown = schema.decode_line(text)
        assert not unknown
        assert not isinstance(line, schema.Unknown)
        lines.append(line)
    assert isinstance(lines[0], schema.Process)
    return lines


def read_recording(out: Path) -> Recording:
    """Of the one process that recorded below `out`."""
    files = record_files(out)
    assert len({p.name.split(".")[0] for p in files}) == 1, files
    return Recording([line for path in files for line in read_file(path)])


def stop(out: Path) -> Recording:
    """End this process's recording; what it wrote below `out`."""
    timeline.stop()
    recording = read_recording(out)
    recording.check_counts()
    return recording


def environment(**more: str) -> dict[str, str]:
    """For a child: our package, nothing that switches recording on or names a run."""
    keep = {
        k: v for k, v in os.environ.items() if not k.startswith(("SLIME", "TORCHELASTIC", "RAY", "SLURM"))
    }
    return {**keep, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))), **more}


def run_program(program: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`program` in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment(**environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
