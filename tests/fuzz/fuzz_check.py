"""One case, merged in this process, and what must be true of the result."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import merged_trace
from fuzz_cases import Case, make_case

from slime_profiler_plugin.check import check_paths, fix_files
from slime_profiler_plugin.merge import MergeError, MergeOptions, MergeReport, merge_traces
from slime_profiler_plugin.read import ReadError, TraceRefusedError, open_trace, read_pieces


class FoundError(AssertionError):
    """The case shows a fault; the message says which."""


def run_case(number: int, folder: Path) -> str:
    """What became of the case: ``merged``, ``merged with damage``, ``refused``. Raises `FoundError`.

    Anything else that is raised is a crash.
    """
    case = make_case(number)
    path = folder / case.seed.name
    path.write_bytes(case.data)
    paths = [path]
    if case.partner:
        paths.append(folder / case.partner.name)
        paths[1].write_bytes(case.partner.data)
    readable = _read(path)
    try:
        outcome = _merge(case, paths, folder / "out.json", readable)
        _check(path, folder / "mended.json", readable)
        return outcome
    finally:
        for file in folder.iterdir():
            file.unlink()


def _read(path: Path) -> int | None:
    """How many events the reader finds, descriptions apart; ``None``: it refuses the file."""
    try:
        trace = open_trace(path)
        return sum(event.ph != "M" for piece in read_pieces(trace, []) for event in piece)
    except (ReadError, TraceRefusedError):
        return None


def _merge(case: Case, paths: list[Path], out: Path, readable: int | None) -> str:
    try:
        report = merge_traces(paths, out, MergeOptions(jobs=1))
    except (ReadError, TraceRefusedError, MergeError) as error:
        if case.partner:
            raise FoundError(f"one bad file sank the merge: {error}") from error
        if case.whole and readable:
            raise FoundError(f"{readable} events could be read, but: {error}") from error
        if out.exists():
            raise FoundError("an output in spite of the error") from error
        return "refused"
    for output in report.outputs:
        output.total.check()
    events = merged_trace.events_of(out)
    if faults := merged_trace.find_faults(events):
        raise FoundError(f"{len(faults)} faults: {faults[:3]}")
    names = Counter(
        event["name"] for event in events if event["ph"] != "M" and isinstance(event.get("name"), str)
    )
    if case.partner:
        _require({name for _, name in case.partner.marks}, names, "the good file")
    if readable is None:
        if not report.exit_code():
            raise FoundError("a refused file, but a clean exit code")
        return "refused"
    _require(case.whole, names, "the part before the damage")
    _compare_with_a_lenient_parser(case, names, report)
    return "merged with damage" if report.exit_code() else "merged"


def _check(path: Path, out: Path, readable: int | None) -> None:
    """`check` says something of a file that it refuses, and a mended copy has no fault that is mended."""
    report = check_paths([path])
    if readable is None:
        if not report.count("error"):
            raise FoundError("a refused file, and check finds no error")
        return
    if not report.files:
        raise FoundError(f"{readable} events could be read, but check: {report.findings[:1]}")
    fixed = fix_files(report, [path], out)
    if not fixed.outputs:
        if not fixed.refused:
            raise FoundError("neither mended nor refused")
        return
    merged_trace.events_of(out)  # which is strict JSON
    again = check_paths([out])
    left = [finding for finding in again.findings if finding.mended_by == "fix"]
    if left:
        raise FoundError(f"faults in the mended copy: {[(f.code, f.count, f.example) for f in left[:3]]}")


def _require(wanted: set[str], names: Counter[str], where: str) -> None:
    if missing := wanted - set(names):
        raise FoundError(f"{len(missing)} events of {where} are gone: {sorted(missing)[:3]}")


def _compare_with_a_lenient_parser(case: Case, names: Counter[str], report: MergeReport) -> None:
    """What Python's parser finds is in the output, or the report tells that something is not."""
    if case.text is None:
        return
    told = bool(report.damage) or any(output.total.dropped for output in report.outputs)
    content = _parse_leniently(case.text.decode("utf-8", "replace"))
    if content is None:
        if not told and {name for _, name in case.seed.marks} - set(names):
            raise FoundError("events are gone from a file that is no JSON, and nothing says so")
        return
    listed = content.get("traceEvents") if isinstance(content, dict) else content
    wanted = Counter(
        event["name"]
        for event in listed or []
        if isinstance(event, dict)
        and isinstance(event.get("ph"), str)
        and event.get("ph") in {"X", "i", "C", "B", "b"}
        and _is_plain(event.get("name"))
    )
    if wanted - names and not told:
        raise FoundError(f"gone without a word: {sorted(wanted - names)[:3]}")


def _parse_leniently(text: str) -> Any:
    """The content; an array may lack its end, and have a comma there, as Chrome's format allows."""
    whole = text.rstrip().removesuffix("]").rstrip().removesuffix(",") + "]"
    for candidate in (text, whole):
        with suppress(ValueError, RecursionError):
            return json.loads(candidate, strict=False)
    return None


def _is_plain(name: object) -> bool:
    return isinstance(name, str) and name.isascii() and name.isprintable()
