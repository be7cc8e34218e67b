"""Every path inside a run folder. Nothing else in the project spells one.

::

    <out>/<run_id>/
      run.json
      attempt-000.json
      records/<host>/<pid>-<start_unix_ns>.jsonl        current segment
      records/<host>/<pid>-<start_unix_ns>.000.jsonl.gz rotated segments
      traces/rollout_000003/<role>-<rank>.<start_unix_ns>.pt.trace.json.gz
      traces/ray/attempt-000.<start_unix_ns>.trace.json.gz   what Ray says of its tasks
      trigger/attempt-000.000.json                      profiler windows that the driver asks for
      merged/rollout_000003.trace.json.gz
      merged/initial.trace.json.gz
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from .schema import INITIAL

#: How the names of traces end that are written here and that viewers take.
TRACE_SUFFIXES: Final = (".json", ".json.gz")
RUN_FILE: Final = "run.json"
ATTEMPT_FILE: Final = re.compile(r"attempt-(\d{3,})\.json")
RECORD_FILE: Final = re.compile(r"(?P<pid>\d+)-(?P<start>\d+)(?:\.(?P<segment>\d{3,}))?\.jsonl(?P<gz>\.gz)?")
TRACE_FILE: Final = re.compile(
    r"(?P<role>[A-Za-z0-9_]+)-(?P<rank>\d+|x)\.(?P<start>\d+)\.pt\.trace\.json(?P<gz>\.gz)?"
)
RAY_FILE: Final = re.compile(r"attempt-(?P<attempt>\d{3,})\.(?P<start>\d+)\.trace\.json\.gz")
#: The folder of those, beside the folders of the rollouts.
RAY_FOLDER: Final = "ray"
_ROLLOUT: Final = re.compile(r"rollout_(\d+)")
_MERGED: Final = ".trace.json.gz"
_RANGE: Final = re.compile(r"rollout_(\d+)-(\d+)")
#: Of a file, mostly: those of folders are numbers of versions.
_FILE_SUFFIX: Final = re.compile(r"\.[A-Za-z][A-Za-z-]*")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


def refuse_as_folder(out: Path) -> str | None:
    """Why `out`, which is no name of a trace, can be no folder to write traces into; ``None``: it can.

    A name that ends as those of files do is hardly meant for a folder, unless there is one.

    >>> refuse_as_folder(Path("merged")), refuse_as_folder(Path("run.2"))
    (None, None)
    >>> refuse_as_folder(Path("all.trace"))
    "a file's name ends in .json or .json.gz; for a folder of this name, make it first"
    """
    if out.is_dir():
        return None
    if out.exists():
        return "no folder, and a file's name ends in .json or .json.gz"
    if _FILE_SUFFIX.fullmatch(out.suffix):
        return "a file's name ends in .json or .json.gz; for a folder of this name, make it first"
    return None


def file_safe(text: str) -> str:
    """`text` as one path component: other characters become ``_``; never empty or dots only.

    >>> file_safe("job 7/b")
    'job_7_b'
    """
    safe = _UNSAFE.sub("_", text)
    return safe if safe.strip(".") else f"_{safe}"


def rollout_name(rollout: int | str) -> str:
    """Folder or file stem of a rollout.

    >>> rollout_name(3), rollout_name("initial")
    ('rollout_000003', 'initial')
    """
    return INITIAL if rollout == INITIAL else f"rollout_{int(rollout):06d}"


def parse_rollout_name(name: str) -> int | str | None:
    """Inverse of `rollout_name`; ``None`` for anything else."""
    if name == INITIAL:
        return INITIAL
    match = _ROLLOUT.fullmatch(name)
    return int(match[1]) if match else None


def range_name(first: int, last: int) -> str:
    """Name of the rollouts from `first` to `last`, both included.

    >>> range_name(3, 4)
    'rollout_000003-000004'
    """
    return f"{rollout_name(first)}-{last:06d}"


def parse_merged_name(name: str) -> tuple[int | str, int | str] | None:
    """The first and the last rollout in a merged timeline, by its file's name; ``None`` for other files.

    >>> parse_merged_name("rollout_000003-000004.trace.json.gz"), parse_merged_name("initial.trace.json.gz")
    ((3, 4), ('initial', 'initial'))
    """
    stem = name.removesuffix(_MERGED)
    if stem in (name, "") or name.startswith("."):
        return None
    match = _RANGE.fullmatch(stem)
    if match:
        return int(match[1]), int(match[2])
    rollout = parse_rollout_name(stem)
    return (stem, stem) if rollout is None else (rollout, rollout)


class RunPaths:
    """The paths of one run folder. Creates nothing."""

    def __init__(self, out: Path | str, run_id: str) -> None:
        self.root = Path(out) / file_safe(run_id)

    @classmethod
    def at(cls, folder: Path | str) -> RunPaths:
        """For an existing run folder, wherever it was moved."""
        paths = cls.__new__(cls)
        paths.root = Path(folder)
        return paths

    @property
    def run_file(self) -> Path:
        """What the run is: written once, by whoever is first."""
        return self.root / RUN_FILE

    def attempt_file(self, attempt: int) -> Path:
        """One start of the run; exclusive create decides who numbers it."""
        return self.root / f"attempt-{attempt:03d}.json"

    @property
    def records(self) -> Path:
        """Folder of the record files, one sub-folder per host."""
        return self.root / "records"

    def record_file(self, host: str, pid: int, start_unix_ns: int, segment: int | None = None) -> Path:
        """The current segment, or the rotated one numbered `segment` (not yet compressed)."""
        number = "" if segment is None else f".{segment:03d}"
        return self.records / file_safe(host) / f"{pid}-{start_unix_ns}{number}.jsonl"

    @property
    def traces(self) -> Path:
        """Folder of the torch.profiler windows, one sub-folder per rollout."""
        return self.root / "traces"

    def trace_file(self, rollout: int | str, role: str, rank: int | None, start_unix_ns: int) -> Path:
        """A torch.profiler window; the grammar is the one torch-tb-profiler groups workers by."""
        rank_text = "x" if rank is None else str(rank)
        name = f"{role}-{rank_text}.{start_unix_ns}.pt.trace.json.gz"
        return self.traces / rollout_name(rollout) / name

    def ray_file(self, attempt: int, start_unix_ns: int) -> Path:
        """Ray's own timeline, collected by the driver whose record file has this start."""
        return self.traces / RAY_FOLDER / f"attempt-{attempt:03d}.{start_unix_ns}.trace.json.gz"

    def trigger_file(self, attempt: int, number: int) -> Path:
        """A profiler window that the driver asks for, the one numbered `number` of the attempt."""
        return self.root / "trigger" / f"attempt-{attempt:03d}.{number:03d}.json"

    @property
    def merged(self) -> Path:
        """Folder of what `merge` writes."""
        return self.root / "merged"

    def merged_file(self, name: str) -> Path:
        """A merged timeline; `name` is a `rollout_name` or a range of them."""
        return self.merged / f"{name}{_MERGED}"
