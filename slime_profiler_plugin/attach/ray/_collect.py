"""Ray's own timeline of tasks, put beside what we recorded when the driver leaves the job."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from isal import igzip

from slime_profiler_plugin.record._guard import FAILURE, describe, warn

PROFILING_VARIABLE: Final = "RAY_PROFILING"
INTERVAL_VARIABLE: Final = "RAY_task_events_report_interval_ms"
#: Ray asks its control store and waits a second for late events; a dead one must not keep the driver.
_PATIENCE_S: Final = 30.0
_LEVEL: Final = 1
_WITHOUT_EVENTS: Final = (
    f"Ray recorded no events for its timeline: {PROFILING_VARIABLE}=1 and {INTERVAL_VARIABLE}=200 have to be "
    "in the environment of the workers too, and of the cluster when it starts (0 switches the reports off)"
)


def is_collected(environ: Mapping[str, str]) -> bool:
    """Whether Ray records its timeline: it does for any value of ``RAY_PROFILING``, even ``0``."""
    return environ.get(PROFILING_VARIABLE, "0") not in ("", "0")


def collect(path: Path) -> None:
    """Write ``ray.timeline()`` to `path`, whole or not at all; half a minute is the most it may take.

    A failure is one warning: the job is over, and was not about this.
    """
    worker = threading.Thread(target=_collect_safely, args=(path,), name="slime_profiler_ray", daemon=True)
    try:
        worker.start()
    except RuntimeError:  # newer Pythons start no thread any more once the interpreter ends
        _collect_safely(path)
        return
    worker.join(_PATIENCE_S)
    if worker.is_alive():
        warn(f"ray.timeline() did not answer within {_PATIENCE_S:.0f} s; it is not collected")


def _collect_safely(path: Path) -> None:
    try:
        _collect(path)
    except FAILURE as error:  # Ray's, or the disk's: the driver ends as it would without us
        warn(f"ray.timeline() could not be collected: {describe(error)}")


def _collect(path: Path) -> None:
    import ray

    events: list[dict[str, Any]] = ray.timeline()
    if not events:
        warn(_WITHOUT_EVENTS)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.write_bytes(igzip.compress(msgspec.json.encode(events), _LEVEL))
    os.replace(unfinished, path)
