"""Mended copies of traces: what a merge does to a file, done to one file by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from slime_profiler_plugin.layout import TRACE_SUFFIXES, refuse_as_folder
from slime_profiler_plugin.merge import MergeError, MergeOptions, MergeReport, merge_traces
from slime_profiler_plugin.read import FIX_KEY, ReadError

from ._check import CheckReport


class FixUsageError(ValueError):
    """The mended files cannot go where they were asked to go; the message says why."""


class MendedFile(msgspec.Struct):
    """What was done to one file.

    `codes`: how often each kind of fault was there that is mended. `events` were written to `output`,
    `joined` ends became a part of the slices that they end; `dropped` are events that are not there any more
    and `mended` events that are written otherwise, by reason. `lost`: what could not be read.
    """

    file: str
    output: str
    codes: dict[str, int]
    events: int
    joined: int
    dropped: dict[str, int]
    mended: dict[str, int]
    lost: list[str]


class FixReport(msgspec.Struct):
    """The files that were written, and why others were not; `left`: findings that nothing was done about."""

    outputs: list[MendedFile]
    refused: dict[str, str]
    left: dict[str, int]

    def exit_code(self, report: CheckReport, *, strict: bool = False) -> int:
        """0: all is mended that is an error (`strict`: all). 3: something is left. 1: nothing was written."""
        if not self.outputs:
            return 1
        left = any(strict or f.severity == "error" for f in report.findings if f.mended_by != "fix")
        return 3 if left or self.refused else 0

    def to_builtins(self) -> Any:
        """As JSON has it."""
        return msgspec.to_builtins(self)


def fix_files(report: CheckReport, paths: Sequence[Path], out: Path) -> FixReport:
    """Write a mended copy of every file of `report`, which is that of `paths`.

    `out`: a file (``.json`` or ``.json.gz``) for one file, else a folder, in which they have the names that
    they have below `paths`. Never writes over a file that was read. Raises `FixUsageError` before anything is
    written.
    """
    targets = _targets([Path(file) for file in report.files], paths, out)
    fixed = FixReport([], {}, {})
    for source, target in targets.items():
        written = _write(source, target)
        if isinstance(written, str):
            fixed.refused[str(source)] = written
        else:
            fixed.outputs.append(_mended(source, report, written))
    for finding in report.findings:
        if finding.mended_by != "fix" or finding.file in fixed.refused:
            fixed.left[finding.code] = fixed.left.get(finding.code, 0) + finding.count
    return fixed


def _write(source: Path, target: Path) -> MergeReport | str:
    """What was written, or why nothing was."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        return merge_traces([source], target, MergeOptions(jobs=1, mark=FIX_KEY))
    except (MergeError, ReadError) as error:
        return str(error)


def _mended(source: Path, report: CheckReport, merged: MergeReport) -> MendedFile:
    (output,) = merged.outputs
    return MendedFile(
        file=str(source),
        output=output.path,
        codes={
            finding.code: finding.count
            for finding in report.findings
            if finding.file == str(source) and finding.mended_by == "fix"
        },
        events=output.events,
        joined=output.total.joined,
        dropped=dict(output.total.dropped),
        mended=output.mended,
        lost=[damage.reason for damage in merged.damage if damage.kind in ("truncated", "corrupt")],
    )


def _targets(files: Sequence[Path], paths: Sequence[Path], out: Path) -> dict[Path, Path]:
    """Where the mended copy of each file goes."""
    one = len(files) == 1 and not paths[0].is_dir()
    if out.name.endswith(TRACE_SUFFIXES) and not out.is_dir():
        if not one:
            raise FixUsageError(f"-o {out}: of several files, a folder is needed")
        targets = {files[0]: out}
    else:
        why = refuse_as_folder(out)
        if why is not None:
            raise FixUsageError(f"-o {out}: {why}")
        targets = {file: out / _name(file, paths) for file in files}
    read = {file.resolve(): file for file in files}
    written: dict[Path, Path] = {}
    for file, target in targets.items():
        if target.resolve() in read:
            raise FixUsageError(f"-o {out}: would write over {read[target.resolve()]}, which is read")
        if target in written:
            raise FixUsageError(f"-o {out}: {written[target]} and {file} would both be {target}")
        written[target] = file
    return targets


def _name(file: Path, paths: Sequence[Path]) -> Path:
    folder = next((path for path in paths if path.is_dir() and file.is_relative_to(path)), file.parent)
    name = file.relative_to(folder)
    return name if name.name.endswith(TRACE_SUFFIXES) else name.with_name(name.name + ".json.gz")
