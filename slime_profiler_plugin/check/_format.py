"""A report as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from ._check import CheckReport
from ._fix import FixReport, MendedFile
from ._rules import Finding


def format_report(report: CheckReport) -> Iterator[str]:
    """A line for each finding, as ``FILE: CODE severity: message``, then a sum."""
    for finding in report.findings:
        yield _line(finding)
    for path, reason in report.skipped.items():
        yield f"{path}: skipped: {reason}"
    checked = _number(len(report.files), "file")
    if not report.findings:
        none = "" if report.skipped else ": no file was found"
        yield f"{checked} checked: nothing found" if report.files else f"nothing could be read{none}"
        return
    counts = ", ".join(
        _number(count, noun) for noun in ("error", "warning", "info") if (count := report.count(noun))
    )
    mended = sum(finding.mended_by == "fix" for finding in report.findings)
    yield f"{checked} checked: {counts}" + (f"; {mended} can be mended by --fix" if mended else "")


def format_fixes(fixed: FixReport) -> Iterator[str]:
    """What was written, what was done to it, and what is as it was."""
    for output in fixed.outputs:
        yield from _format_mended(output)
    for file, reason in fixed.refused.items():
        yield f"{file}: not mended: {reason}"
    if fixed.left:
        yield f"not mended: {_format_codes(fixed.left)}"


def _format_mended(output: MendedFile) -> Iterator[str]:
    done = f"mended {_format_codes(output.codes)}" if output.codes else "nothing to mend"
    yield f"{output.file}: {done}; {_number(output.events, 'event')} written to {output.output}"
    if output.joined:
        yield f"    {_number(output.joined, 'end event')} made one with what they end"
    for reason, count in output.mended.items():
        yield f"    {count} mended: {reason}"
    for reason, count in output.dropped.items():
        yield f"    {count} dropped: {reason}"
    for reason in output.lost:
        yield f"    lost before: {reason}"


def _format_codes(codes: dict[str, int]) -> str:
    return ", ".join(f"{code} ({count})" for code, count in sorted(codes.items()))


def _line(finding: Finding) -> str:
    where = finding.file if finding.file is not None else _number(len(finding.files), "file") + " together"
    text = f"{where}: {finding.code} {finding.severity}: {finding.message}"
    if finding.example:
        text += f"; first: {finding.example}" if finding.count > 1 else f": {finding.example}"
    if finding.mended_by == "fix":
        return text + " (mended by --fix)"
    return text + " (mended by merge)" if finding.mended_by == "merge" else text


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
