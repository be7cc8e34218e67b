"""What the record files and the writer's thread of a benchmark say."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

from slime_profiler_plugin import schema


def writer_cpu_ns() -> int:
    """CPU of the thread that writes, from the kernel: the public face does not say."""
    (writer,) = [thread for thread in threading.enumerate() if thread.name == "slime_profiler_writer"]
    return int(Path(f"/proc/self/task/{writer.native_id}/schedstat").read_text().split()[0])


def count_phases(out: Path) -> tuple[Counter[str], int, int]:
    """Of all record files below `out`: phases by name, how many were dropped, how many files have no end."""
    phases: Counter[str] = Counter()
    dropped = unfinished = 0
    for path in out.glob("*/records/*/*.jsonl"):
        lines = [schema.decode_line(raw)[0] for raw in path.read_bytes().splitlines()]
        phases.update(line.name for line in lines if isinstance(line, schema.Phase))
        ends = [line for line in lines if isinstance(line, schema.End)]
        dropped += sum(end.counts["dropped"] for end in ends)
        unfinished += not ends
    return phases, dropped, unfinished
