"""The mergers that are compared, each a program of its own: ``python _mergers.py NAME OUT JOBS PATH...``.

SGLang's is loaded from the file that ``PROFILE_MERGER`` in the environment names.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import logging
import os
import sys
from pathlib import Path

_LEVEL = 1
_GZIP = 31
_BLOCK = 4 << 20
_BOUNDARY = b"\n  },\n  {"


def ours(out: Path, jobs: int, paths: list[Path]) -> None:
    """This package, all rules on."""
    from slime_profiler_plugin.merge import MergeOptions, merge_traces

    report = merge_traces(paths, out, MergeOptions(jobs=jobs))
    if report.exit_code():
        sys.exit(f"exit code {report.exit_code()}: {report.damage} {report.warnings}")


def sglang(out: Path, _jobs: int, paths: list[Path]) -> None:
    """SGLang's ProfileMerger: whole files, the standard library's json, gzip level 9.

    It picks its inputs by name from one folder, and puts its output there. It logs a file that it cannot
    merge, and goes on.
    """
    logging.basicConfig(level=logging.ERROR, handlers=[_Fail()])
    spec = importlib.util.spec_from_file_location("profile_merger", os.environ["PROFILE_MERGER"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder, profile = paths[0].parent, paths[0].name.partition("-TP-")[0]
    Path(module.ProfileMerger(str(folder), profile).merge_chrome_traces()).replace(out)


def viztracer(out: Path, _jobs: int, paths: list[Path]) -> None:
    """``viztracer --combine``, whose inputs are plain JSON; gzip level 9, as Python's default is."""
    from viztracer.report_builder import ReportBuilder

    ReportBuilder([str(path) for path in paths], verbose=0).save(str(out))


def stdlib(out: Path, _jobs: int, paths: list[Path]) -> None:
    """What anyone would write first: load everything, number the processes, dump; gzip level 6."""
    merged = []
    numbers: dict[tuple[int, object], int] = {}
    for rank, path in enumerate(paths):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            trace = json.load(stream)
        for event in trace["traceEvents"]:
            key = (rank, event.get("pid"))
            event["pid"] = numbers.setdefault(key, len(numbers) + 1)
        merged.extend(trace["traceEvents"])
    with gzip.open(out, "wt", encoding="utf-8", compresslevel=6) as stream:
        stream.write(json.dumps({"traceEvents": merged}))


def floor(out: Path, _jobs: int, paths: list[Path]) -> None:
    """Decompress, split into events, put together again, compress; nothing is looked at.

    The libraries, and the compression level, are those of this package's merge.
    """
    from isal import isal_zlib

    packer = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP)
    with out.open("wb") as target:
        for path in paths:
            unpacker = isal_zlib.decompressobj(_GZIP)
            packed, rest = path.read_bytes(), b""
            while not unpacker.eof:
                *events, rest = (rest + unpacker.decompress(packed, _BLOCK)).split(_BOUNDARY)
                packed = unpacker.unconsumed_tail
                if events:
                    target.write(packer.compress(_BOUNDARY.join(events) + _BOUNDARY))
            target.write(packer.compress(rest))
        target.write(packer.flush())


class _Fail(logging.Handler):
    """What it only logs is an error here."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.exit(record.getMessage())


if __name__ == "__main__":
    name, out, jobs, *rest = sys.argv[1:]
    {"ours": ours, "sglang": sglang, "viztracer": viztracer, "stdlib": stdlib, "floor": floor}[name](
        Path(out), int(jobs), [Path(path) for path in rest]
    )
