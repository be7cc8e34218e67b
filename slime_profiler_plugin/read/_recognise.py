"""Which program wrote a trace; merged ones are refused: their events stand in what they were made of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from msgspec import UNSET

from ._damage import TraceRefusedError
from ._events import TraceEvent
from ._header import BASE_KEY, DISTRIBUTED_KEY, Head
from ._owner import parse_engine_name

#: The key of a timeline that `slime-profiler merge` wrote.
MERGE_KEY: Final = "slime_profiler_merge"
#: The key of a mended copy that `slime-profiler check --fix` wrote of a trace.
FIX_KEY: Final = "slime_profiler_fix"
_KINETO_KEYS: Final = frozenset({"schemaVersion", "deviceProperties", DISTRIBUTED_KEY, BASE_KEY})
#: SGLang's merger puts the ranks before each pid.
_SGLANG_LABEL: Final = re.compile(r"\[(?:TP|DP|PP|EP)\d+(?:-(?:TP|DP|PP|EP)\d+)*\] ")
_SGLANG_MERGED: Final = re.compile(r"merged-(?P<id>.+)\.trace\.json(?:\.gz)?")
_SGLANG_PROCESS: Final = b"sglang::scheduler"
_RAY_THREADS: Final = ("worker:", "driver:")


def recognise(path: Path, head: Head) -> str:
    """The format of the trace at `path`, as in `TraceFile`. Raises `TraceRefusedError` for a merged one."""
    metadata = head.header.metadata
    merged = ""
    if MERGE_KEY in metadata:
        merged = "a merged timeline of slime-profiler"
    elif any(isinstance(event.pid, str) and _SGLANG_LABEL.match(event.pid) for event in head.events):
        merged = "a merged trace of SGLang"
    elif _is_beside_its_sources(path):
        merged = "named as a merged trace of SGLang, beside the files it was made of"
    if merged:
        raise TraceRefusedError(f"{path}: {merged}, no source: use what it was made of", is_merged=True)
    if head.header.identity:
        return "ours"
    if head.layout == "array":
        return "ray" if any(map(_is_task, head.events)) else "chrome"
    if any(map(_is_scheduler, head.events)) or parse_engine_name(path.name):
        return "sglang"
    return "kineto" if _KINETO_KEYS & metadata.keys() else "chrome"


def _is_beside_its_sources(path: Path) -> bool:
    match = _SGLANG_MERGED.fullmatch(path.name)
    if match is None:
        return False
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return False
    engines = (parse_engine_name(name) for name in names)
    return any(engine is not None and engine.profile_id.endswith(match["id"]) for engine in engines)


def _is_task(event: TraceEvent) -> bool:
    return isinstance(event.tid, str) and event.tid.startswith(_RAY_THREADS)


def _is_scheduler(event: TraceEvent) -> bool:
    return event.ph == "M" and event.args is not UNSET and _SGLANG_PROCESS in bytes(event.args)
