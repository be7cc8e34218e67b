"""What an engine's profiler writes: who recorded it, and in which rollout's folder it ends.

The end of a window blocks the scheduler until the file is written, which is a phase. Windows that somebody
else started get our metadata and stay where they are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from slime_profiler_plugin import clock
from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.attach._failures import FAILURE, failed, is_theirs
from slime_profiler_plugin.attach._wrap import Bound

#: The clocks when the window began; there is one profiler in a process.
_began: Final[list[clock.ClockPair]] = []


def around_start(call: Callable[[], Any], _bound: Bound) -> Any:
    """A window begins."""
    _began[:] = [clock.read_pair()]
    return call()


def around_stop(call: Callable[[], Any], bound: Bound) -> Any:
    """A window ends and is written."""
    manager = bound.args[0]
    profile = getattr(manager, "torch_profiler", None)
    recorder = timeline._recorder
    if profile is None or recorder is None:
        return call()
    from slime_profiler_plugin import schema

    from ._window_id import rollout_of

    process, paths = recorder._part.identity, recorder._part.paths
    pairs = [*_began, clock.read_pair()]
    began = pairs[0].unix_ns
    rollout = rollout_of(str(manager.profile_id))
    profile.add_metadata_json(schema.WINDOW_IDENTITY_KEY, json.dumps(schema.window_identity(process, pairs)))
    if rollout is not None:
        profile.add_metadata_json(schema.WINDOW_ROLLOUTS_KEY, json.dumps([rollout]))
    with timeline.phase("profiler_export", profile_id=str(manager.profile_id)):
        result = call()
    if rollout is not None:
        folder = Path(manager.torch_profiler_output_dir)
        name = f"{manager.profile_id}-TP-{process.ranks.get('tp', 0)}"
        final = paths.trace_file(rollout, "engine", process.rank, began)
        try:
            keep(folder, name, final)
        except FAILURE as error:
            if is_theirs(error):
                raise
            failed("an engine's window", error)
    return result


def keep(folder: Path, name: str, final: Path) -> bool:
    """Give the file in `folder` whose name is `name`, with more ranks behind it or not, its place.

    The last to go removes the folder. Returns whether there was one. Raises `OSError`.
    """
    for path in sorted(folder.glob(f"{name}*.trace.json.gz")):
        if path.name[len(name)] in "-.":
            final.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, final)
            if not any(folder.iterdir()):
                folder.rmdir()
            return True
    return False
