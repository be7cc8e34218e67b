"""A ZIP of traces as they are, which Perfetto (58.2 or newer) shows on one timeline.

It holds a ``perfetto_manifest``, version 1 of https://perfetto.dev/docs/reference/perfetto-manifest: each
file is a machine of its own, so that equal pids stay apart, and is pinned to the first by a fixed offset.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from slime_profiler_plugin.layout import TRACE_SUFFIXES
from slime_profiler_plugin.read import TraceFile

from ._options import MergeOptions
from ._rollouts import MergeUsageError
from ._trace import TraceSource

MANIFEST: Final = "perfetto_manifest.json"
#: The earliest date that a ZIP can say: equal inputs give equal files.
_DATE: Final = (1980, 1, 1, 0, 0, 0)
_MODE: Final = 0o644 << 16
_BUFFER: Final = 1 << 20


class Member(NamedTuple):
    """A trace in an archive: its file, the machine it is shown as, and what to add to its times (ns)."""

    path: Path
    machine: str
    offset_ns: int


def can_be_member(path: Path) -> bool:
    """Whether Perfetto reads such a file from an archive."""
    return path.name.endswith(TRACE_SUFFIXES)


class Archived(NamedTuple):
    """An archive that was written: its path, ``None`` where there is none; the names of what cannot be in it;
    why it could not be written."""

    path: str | None
    without: list[str]
    failed: str | None = None


def archive_path(path: Path) -> Path:
    """Where the archive of an output goes.

    >>> archive_path(Path("merged/rollout_000003.trace.json.gz")).name
    'rollout_000003.trace.zip'
    """
    return path.with_name(path.name.removesuffix(".gz").removesuffix(".json") + ".zip")


def refuse_inputs(path: Path, traces: Iterable[TraceFile], options: MergeOptions) -> None:
    """Raises `MergeUsageError` where the output at `path`, or its archive, would replace one of `traces`."""
    written = {path.resolve(): path}
    if options.archive:
        written[archive_path(path).resolve()] = archive_path(path)
    for trace in traces:
        taken = written.get(trace.path.resolve())
        if taken is not None:
            raise MergeUsageError(f"-o: {taken} is one of the files to merge")


def write_archive(path: Path, members: Sequence[Member], attributes: Mapping[str, str | int]) -> None:
    """Write the archive, whole or not at all."""
    names = _names(members)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            manifest = json.dumps(describe_members(members, names, attributes), indent=1)
            archive.writestr(_about(MANIFEST), manifest)
            for member, name in zip(members, names, strict=True):
                about = _about(name)
                with member.path.open("rb") as source, archive.open(about, "w", force_zip64=True) as target:
                    shutil.copyfileobj(source, target, _BUFFER)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def archive_sources(
    path: Path, first: Sequence[Member], sources: Sequence[TraceSource], attributes: Mapping[str, str | int]
) -> Archived:
    """Write the archive of the output at `path`: `first`, then every source that can be in one."""
    placed = [source for source in sources if source.first_ns is not None]
    without = [source.trace.path.name for source in placed if not can_be_member(source.trace.path)]
    members = [
        *first,
        *(
            Member(source.trace.path, source.name, source.offset_ns)
            for source in placed
            if can_be_member(source.trace.path)
        ),
    ]
    if not members:
        return Archived(None, without)
    target = archive_path(path)
    try:
        write_archive(target, members, attributes)
    except OSError as error:  # the output itself is there already
        return Archived(None, without, f"{target}: {error.strerror or error}")
    return Archived(str(target), without)


def describe_members(
    members: Sequence[Member], names: Sequence[str], attributes: Mapping[str, str | int]
) -> dict[str, Any]:
    """The manifest. An offset is what a file's clock lacks to that of the first file."""
    files: list[dict[str, Any]] = []
    for member, name in zip(members, names, strict=True):
        entry: dict[str, Any] = {"path": name, "machine": {"name": member.machine}}
        if files:
            offset = member.offset_ns - members[0].offset_ns
            entry["clocks"] = {"sync_to": {"file": names[0]}, "offset_ns": offset}
        files.append(entry)
    return {"perfetto_manifest": {"version": 1, "files": files, "attributes": dict(attributes)}}


def _names(members: Sequence[Member]) -> list[str]:
    """A name of its own for each file."""
    return [f"{number:04d}-{member.path.name}" for number, member in enumerate(members)]


def _about(name: str) -> zipfile.ZipInfo:
    about = zipfile.ZipInfo(name, _DATE)
    about.external_attr = _MODE
    return about
