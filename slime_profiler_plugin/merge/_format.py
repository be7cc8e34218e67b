"""A merge report as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ._clock_check import ClockCheck, format_clock_check
from ._endings import ENDED, ENDED_WITH_JOB
from ._ledger import Ledger
from ._options import BROWSER_BYTES
from ._report import MergeReport, OutputReport, ProcessReport
from ._words import bound_items, format_ending, format_missing, format_of, format_range

#: More damage, files or stretches of ranks than this are counted, not listed; ``--json`` has them all.
_LISTED: Final = 20
_IGNORED_LISTED: Final = 5
_NS_PER_S: Final = 1e9
#: Arrows that are written and that no viewer shows.
_UNSEEN: Final = frozenset(
    {
        "arrows that end before they begin",
        "ends of arrows without the other end",
    }
)


def format_report(report: MergeReport) -> Iterator[str]:
    """What a person wants to know, most important last."""
    several = len(report.attempts) > 1
    if report.run_id is not None:
        yield f"run {report.run_id}, attempt{'s' * several} {', '.join(map(str, report.attempts))}"
    yield from _format_inputs(report)
    yield from _format_ranks(report)
    for process in report.processes:
        yield from _format_process(process, report.processes[0].clock_domain)
    if report.ignored:
        yield f"  no source: {', '.join(bound_items(report.ignored, _IGNORED_LISTED))}"
    if report.left_out:
        yield f"  not asked for: {', '.join(bound_items(report.left_out, _IGNORED_LISTED))}"
    for damage in report.damage[:_LISTED]:
        where = f"{damage.file}:{damage.line}" if damage.line is not None else damage.file
        yield f"  {damage.kind}: {where}: {damage.reason}"
    if len(report.damage) > _LISTED:
        yield f"  and {len(report.damage) - _LISTED} more of this kind (--json lists them)"
    for warning in report.warnings:
        yield f"warning: {warning}"
    if report.outputs:
        yield from _format_outputs(report, several)


def _format_inputs(report: MergeReport) -> Iterator[str]:
    """The traces that belong to no run."""
    for each in report.inputs[:_LISTED]:
        yield f"  {each.name}: {Path(each.file).name} ({each.format}, {each.clock})"
        if each.clock_check is not None:
            yield f"    {format_clock_check(ClockCheck(**each.clock_check))}"  # type: ignore[arg-type]
    if len(report.inputs) > _LISTED:
        yield f"  and {len(report.inputs) - _LISTED} more traces (--json lists them)"


def _format_ranks(report: MergeReport) -> Iterator[str]:
    """Who is there in one line for each attempt, who is not in one for each role."""
    for attempt in report.attempts or [0]:
        own = [ranks for ranks in report.ranks if ranks.attempt == attempt]
        told = f"attempt {attempt}: " if len(report.attempts) > 1 else ""
        whole = [f"{r.role} {format_of(r.seen, r.world_size)}" for r in own if not r.missing]
        if whole:
            yield f"  {told}ranks seen: {', '.join(whole)}"
        for r in own:
            if r.missing:
                yield f"  {told}{format_missing(r.role, r.seen, r.world_size, r.missing, _LISTED)}"


def _format_process(process: ProcessReport, reference: str) -> Iterator[str]:
    if process.clock_domain != reference or process.clock.startswith("assumed"):
        yield f"  {process.name}: clock {process.clock}"
    if process.ending not in (ENDED, ENDED_WITH_JOB) or process.open_phases:
        yield f"  {process.name}: {format_ending(process.ending, process.replaced_by, process.open_phases)}"
    for what, count in process.dropped.items():
        yield f"  {process.name}: the recorder dropped {count} {what}"


def _format_outputs(report: MergeReport, several_attempts: bool) -> Iterator[str]:
    """The folder, which they have in common; the files; what became of everything that was read for them."""
    outputs = report.outputs
    total = Ledger(source="all files")
    arrows: Counter[str] = Counter()
    yield f"merged into {Path(outputs[0].path).parent}:"
    for output in outputs:
        yield from _format_output(output, several_attempts)
        total.add(output.total)
        arrows.update(output.arrows_drawn)
        arrows["events of traces"] += output.counts.get("arrows", 0)
    for pair, count in (+arrows).items():
        yield f"  {_count(count, 'arrow')} from {pair}"
    whole = "all files: " if len(outputs) > 1 else ""
    lost = sum(damage.lost for damage in report.damage)
    yield (
        f"  {whole}{total.read} read = {total.written} written + {total.other_rollouts} of other rollouts "
        f"+ {total.described} descriptions"
        + (f" + {total.joined} joined to what they end" if total.joined else "")
        + f" + {sum(total.dropped.values())} dropped"
        + (f"; {lost} more could not be read" if lost else "")
    )


def _format_output(output: OutputReport, several_attempts: bool) -> Iterator[str]:
    lasted = ", ".join(
        _format_seconds(ns) + (f" in attempt {attempt}" if several_attempts else "")
        for attempt, ns in output.lasted_ns.items()
    )
    dropped = output.total.dropped
    if output.rollouts:
        told = f"{_name_rollouts(output.rollouts)}{f' lasted {lasted}' if lasted else ''}; "
    else:
        told = f"{lasted} in all; "
    yield (
        f"  {Path(output.path).name}: {told}"
        f"{_count(output.events, 'event')}, {_count(output.arrows, 'arrow')}, "
        + (f"{sum(dropped.values())} dropped" if dropped else "nothing dropped")
    )
    for reason, count in dropped.items():
        yield f"    {count} dropped: {reason}"
    yield from _format_budget(output)
    if output.archive is not None:
        yield f"    {Path(output.archive).name}: the sources as they are, for Perfetto 58.2 or newer"
    if output.archive_failed is not None:
        yield f"    the archive was not written: {output.archive_failed}"
    if output.not_archived:
        yield f"    not in the archive: {', '.join(bound_items(output.not_archived, _IGNORED_LISTED))}"
    for what, count in output.mended.items():
        yield f"    {count} mended: {what}"
    for what, count in output.counts.items():
        if what in _UNSEEN:
            yield f"    {count} {what}"
    for reason, count in output.arrows_not_drawn.items():
        yield f"    {_count(count, 'arrow')} not drawn from {reason}"


def _format_budget(output: OutputReport) -> Iterator[str]:
    for what, threshold in (
        ("kernels", output.kernel_threshold_ns),
        ("other slices", output.slice_threshold_ns),
    ):
        if threshold:
            yield f"    to fit the budget, {what} shorter than {threshold / 1000:.3f} us are not written"
    if output.size > BROWSER_BYTES and not output.kernel_threshold_ns:
        size = output.size / 1e6
        yield f"    {size:.0f} MB uncompressed: a browser may refuse it; --budget-mb bounds it"


def _name_rollouts(rollouts: list[int | str]) -> str:
    """``rollout 3``, ``rollouts 3 to 5``, ``initial``."""
    first, last = rollouts[0], rollouts[-1]
    if isinstance(first, int) and isinstance(last, int):
        return f"rollout{'s' * (first != last)} {format_range(first, last)}"
    return ", ".join(map(str, rollouts))


def _format_seconds(ns: int) -> str:
    """In ms below a second, to the ms below ten.

    >>> [_format_seconds(ns) for ns in (1_234_567, 999_000_000, 1_234_567_890, 402_123_000_000)]
    ['1.23 ms', '999 ms', '1.235 s', '402.1 s']
    """
    seconds = ns / _NS_PER_S
    if seconds < 0.9995:
        return f"{seconds * 1000:.2f} ms" if seconds < 0.009995 else f"{seconds * 1000:.0f} ms"
    return f"{seconds:.3f} s" if seconds < 9.9995 else f"{seconds:.1f} s"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"
