"""This process as part of a Ray job: recording begins once Ray can say which, and children find the run too.

A driver is connected when ``ray.init`` returns; a worker knows its job at its first task, and is somebody
when that makes it an actor.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from slime_profiler_plugin._timeline import timeline

#: Ray's own actors, such as the supervisor of a submitted job, whose child is the driver: no part of the run.
_RAYS_OWN: Final = "ray."


class Membership:
    """What joining a job changed in this process, so that it can be taken back."""

    def __init__(self) -> None:
        self._exported: dict[str, str] = {}
        #: Whether this worker was asked to be an actor already.
        self.is_actor = False
        #: Where Ray's own timeline goes, in a driver that records.
        self.ray_file: Path | None = None

    def join_as_driver(self) -> None:
        """Record this process, unless it does already or nothing switches it on."""
        self._join(role="driver", rank=0, world_size=1)
        if timeline._recorder is not None:
            self.ray_file = timeline._recorder.ray_file()

    def join_as_actor(self, class_module: str) -> None:
        """The same for an actor whose class was defined in `class_module`.

        Its role and rank are what its environment says (``SLIME_PROFILER_ROLE``), until somebody tells.
        """
        self.is_actor = True
        if not class_module.startswith(_RAYS_OWN):
            self._join()

    def leave(self) -> None:
        """Take back what was put into the environment: another job of this process is another run."""
        for name, value in self._exported.items():
            if os.environ.get(name) == value:
                del os.environ[name]
        self._exported.clear()
        self.ray_file = None

    def _join(self, **identity: Any) -> None:
        if not timeline.on:
            timeline.start(**identity)
        recorder = timeline._recorder
        if recorder is None:
            return
        # A subprocess of an actor is not connected to Ray, and could not find the run by itself.
        for name, value in recorder.shared_environ().items():
            if not os.environ.get(name):
                os.environ[name] = value
                self._exported[name] = value
