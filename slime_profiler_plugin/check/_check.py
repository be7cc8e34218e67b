"""Checking files and folders, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from . import _devices, _form, _ids, _sets, _times, _tracks  # noqa: F401 - they register their rules
from ._rules import RULES, Finding, Severity
from ._survey import FileSurvey, survey_file

_ENDINGS: Final = (".json", ".json.gz", ".json.zip", ".sqlite", ".nsys-rep")


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


def check_paths(paths: Iterable[Path], tell: Callable[[Path], None] = lambda _: None) -> CheckReport:
    """Look at every file, and at every trace below every folder; `tell` is called before each.

    Never raises for what is in a file: that is a finding. One file is in memory at a time, as 32 bytes per
    event; of each stays only what is compared between files.
    """
    report = CheckReport([], {}, [])
    kept: list[FileSurvey] = []
    for path, named in _find(paths):
        tell(path)
        survey = survey_file(path)
        if survey.refused is not None and not named:
            report.skipped[str(path)] = survey.refused
            continue
        report.findings += _findings(survey)
        if survey.trace is not None:
            report.files.append(str(path))
            kept.append(_only_what_is_compared(survey))
    if len(kept) > 1:
        for rule in _in_order():
            if rule.in_set is not None:
                report.findings += [rule.finding(found, None) for found in rule.in_set(kept)]
    return report


def _findings(survey: FileSurvey) -> Iterator[Finding]:
    for rule in _in_order():
        if rule.in_file is not None:
            yield from (rule.finding(found, str(survey.path)) for found in rule.in_file(survey))


def _in_order() -> list[Any]:
    return [RULES[code] for code in sorted(RULES)]


def _find(paths: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """(file, whether it was named), each once."""
    seen: set[Path] = set()
    for path in paths:
        inside = (
            sorted(each for each in path.rglob("*") if each.name.endswith(_ENDINGS))
            if path.is_dir()
            else None
        )
        for each in [path] if inside is None else inside:
            if each not in seen and not (inside is not None and each.is_dir()):
                seen.add(each)
                yield each, inside is None


def _only_what_is_compared(survey: FileSurvey) -> FileSurvey:
    survey.clock  # noqa: B018 - is worked out now, from times that go away
    survey.events.shrink()
    return survey
