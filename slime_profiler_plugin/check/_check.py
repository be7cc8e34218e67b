"""Checking files and folders, and what comes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from slime_profiler_plugin.layout import RunPaths
from slime_profiler_plugin.read import ReadError, TraceFile, discover

from . import _devices, _form, _ids, _sets, _times, _tracks  # noqa: F401 - they register their rules
from ._rules import RULES, Finding, Rule, Severity
from ._survey import FileSurvey, survey_file, survey_trace, without_path


class CheckReport(msgspec.Struct):
    """What was looked at: `files` that could be read, `skipped` files of a folder that are no traces, and
    the `findings`, by file and code, those of several files together at the end."""

    files: list[str]
    skipped: dict[str, str]
    findings: list[Finding]

    def exit_code(self, *, strict: bool = False) -> int:
        """0: no error-level finding (`strict`: none at all), 3: some, 1: nothing could be read."""
        if not self.files:
            return 1
        return 3 if any(strict or finding.severity == "error" for finding in self.findings) else 0

    def count(self, severity: Severity) -> int:
        """How many findings are of this severity."""
        return sum(finding.severity == severity for finding in self.findings)

    def to_builtins(self) -> Any:
        """As JSON has it."""
        return msgspec.to_builtins(self)


def check_paths(paths: Iterable[Path]) -> CheckReport:
    """Look at every file, and at every trace below every folder.

    Never raises for what is in a file: that is a finding. One file is in memory at a time, as 32 bytes per
    event; of each stays only what is compared between files.
    """
    found = find_traces(paths)
    report = CheckReport([], found.skipped, [])
    kept: list[FileSurvey] = []
    for source in found.sources:
        survey = _survey(source)
        report.findings += _findings(survey)
        if survey.trace is not None:
            report.files.append(str(survey.path))
            survey.shrink()
            kept.append(survey)
    if len(kept) > 1:
        for rule in _in_order():
            if rule.in_set is not None:
                report.findings += [rule.finding(found, None) for found in rule.in_set(kept)]
    return report


def _findings(survey: FileSurvey) -> Iterator[Finding]:
    for rule in _in_order():
        if rule.in_file is not None:
            yield from (rule.finding(found, str(survey.path)) for found in rule.in_file(survey))


def _in_order() -> list[Rule]:
    return [RULES[code] for code in sorted(RULES)]


class Sources(NamedTuple):
    """`sources`: traces of folders, and files that were named, whatever they are; `skipped`: files of
    folders that are none, and why."""

    sources: list[TraceFile | Path]
    skipped: dict[str, str]


def find_traces(paths: Iterable[Path]) -> Sources:
    """Every trace in `paths`, each once; of a run of ours, the windows of torch.profiler."""
    found = Sources([], {})
    seen: set[Path] = set()
    for path in paths:
        for source in _in_folder(path, found.skipped) if path.is_dir() else [path]:
            each = source.path if isinstance(source, TraceFile) else source
            if each not in seen:
                seen.add(each)
                found.sources.append(source)
    return found


def _in_folder(folder: Path, skipped: dict[str, str]) -> Iterator[TraceFile | Path]:
    told = discover([folder])
    yield from told.traces
    for damage in told.damage:
        yield Path(damage.file)
    skipped.update((str(path), reason) for path, reason in told.skipped)
    for run in told.runs:
        windows = RunPaths.at(run).traces
        in_run = list(_in_folder(windows, skipped)) if windows.is_dir() else []
        yield from in_run
        if not in_run:
            skipped[str(run)] = NO_WINDOWS


NO_WINDOWS: Final = (
    "a run without windows of torch.profiler: its records are no trace; merge it, and name the merged file"
)


def _survey(source: TraceFile | Path) -> FileSurvey:
    path = source if isinstance(source, Path) else source.path
    if path.exists() and not path.is_file():
        return FileSurvey(path, unreadable="neither a file nor a folder")
    try:
        return survey_file(source) if isinstance(source, Path) else survey_trace(source)
    except ReadError as error:
        return FileSurvey(path, unreadable=without_path(error, path))
    except MemoryError:
        return FileSurvey(path, unreadable="it has more events than fit into memory")
