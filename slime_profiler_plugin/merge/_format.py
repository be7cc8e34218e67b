"""A merge report as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ._endings import ENDED, ENDED_WITH_JOB
from ._report import MergeReport, OutputReport, ProcessReport

#: More damage than this is counted, not listed; ``--json`` has all of it.
_LISTED: Final = 20


def format_report(report: MergeReport) -> Iterator[str]:
    """What a person wants to know, most important last."""
    some = "attempt" if len(report.attempts) == 1 else "attempts"
    yield f"run {report.run_id}, {some} {', '.join(map(str, report.attempts))}"
    for ranks in report.ranks:
        size = "?" if ranks.world_size is None else str(ranks.world_size)
        attempt = f"attempt {ranks.attempt}: " if len(report.attempts) > 1 else ""
        missing = f"; missing rank {', '.join(map(str, ranks.missing))}" if ranks.missing else ""
        yield f"  {attempt}{ranks.role}: {ranks.seen} of {size} ranks seen{missing}"
    for process in report.processes:
        yield from _format_process(process, report.processes[0].clock_domain)
    if report.ignored:
        yield f"  {len(report.ignored)} files are no source: {', '.join(report.ignored[:5])}"
    for damage in report.damage[:_LISTED]:
        where = f"{damage.file}:{damage.line}" if damage.line is not None else damage.file
        yield f"  {damage.kind}: {where}: {damage.reason}"
    if len(report.damage) > _LISTED:
        yield f"  and {len(report.damage) - _LISTED} more of this kind (--json lists them)"
    for warning in report.warnings:
        yield f"warning: {warning}"
    for output in report.outputs:
        yield from _format_output(output)


def _format_process(process: ProcessReport, reference: str) -> Iterator[str]:
    if process.clock_domain != reference or process.clock.startswith("assumed"):
        yield f"  {process.name}: clock {process.clock}"
    if process.ending not in (ENDED, ENDED_WITH_JOB) or process.open_phases:
        still = ", ".join(f"{name} ({n})" if n > 1 else name for name, n in process.open_phases.items())
        yield f"  {process.name}: {process.ending}" + (f", in open phase {still}" if still else "")
    for what, count in process.dropped.items():
        yield f"  {process.name}: the recorder dropped {count} {what}"


def _format_output(output: OutputReport) -> Iterator[str]:
    total = output.total
    dropped = f" + {sum(total.dropped.values())} dropped" if total.dropped else ""
    yield (
        f"{output.path}: {total.read} read = {total.written} written "
        f"+ {total.other_rollouts} of other rollouts + {total.described} descriptions{dropped}"
    )
    for reason, count in total.dropped.items():
        yield f"  dropped {count}: {reason}"
    for pair, count in output.arrows_drawn.items():
        yield f"  {count} arrows from {pair}"
    for reason, count in output.arrows_not_drawn.items():
        yield f"  {count} arrows not drawn from {reason}"
