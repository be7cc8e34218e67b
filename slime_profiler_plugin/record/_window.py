"""One torch.profiler window: prepared, recording, stopped, written."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from slime_profiler_plugin import clock, schema

if TYPE_CHECKING:
    from slime_profiler_plugin.config import Profiler

#: Read at the end of a trace file to see that it is whole.
_TAIL_BYTES: Final = 65_536


class WindowError(RuntimeError):
    """This window is lost; the next may work."""


class Window:
    """A `torch.profiler.profile` of one's own for each window.

    A fresh one, driven by `prepare_trace`, `start_trace` and `stop_trace`, can end at the
    point of the loop where the rank waits, and holds no memory from the window before.
    Everything happens on one thread: torch.profiler cannot be stopped from another.

    Methods raise `WindowError`, `OSError` or what torch raises.
    """

    def __init__(self, settings: Profiler, identity: schema.Process) -> None:
        import torch

        self._torch: Any = torch
        self._identity = identity
        self._settings = settings
        self._thread = threading.get_ident()
        self.activities = supported_activities(settings.activities)
        self._profile = torch.profiler.profile(
            activities=[getattr(torch.profiler.ProfilerActivity, n) for n in self.activities.values()],
            with_stack=settings.with_stack,
            record_shapes=settings.record_shapes,
            profile_memory=settings.profile_memory,
        )
        self._step: Any = None
        self._pairs: list[clock.ClockPair] = []
        self.rollouts: list[int] = []
        self.recording = False
        self.start_ns = 0
        self.start_unix_ns = 0
        self.stop_ns = 0

    def prepare(self) -> None:
        """Warm up: the profiler's own set-up happens, nothing is recorded."""
        self._refuse_a_second()
        self._profile.prepare_trace()

    def start(self) -> None:
        """Record from now on."""
        self._refuse_a_second()
        self._read_clocks()
        self._profile.preset_metadata_json(schema.WINDOW_IDENTITY_KEY, self._about())
        self._profile.start_trace()
        self.recording = True
        self.start_ns, self.start_unix_ns = self._pairs[0].mono_ns, self._pairs[0].unix_ns

    def begin_rollout(self, rollout: int) -> None:
        """`rollout` begins, within the window. It is one ``ProfilerStep`` of the trace."""
        self._end_step()
        self.rollouts.append(rollout)
        self._profile.add_metadata_json(schema.WINDOW_ROLLOUTS_KEY, json.dumps(self.rollouts))
        self._step = self._torch.profiler.record_function(f"ProfilerStep#{rollout}")
        self._step.__enter__()

    def on_its_thread(self) -> bool:
        """Whether this thread may stop the window."""
        return threading.get_ident() == self._thread

    def stop(self, cut: str | None = None) -> None:
        """Record no more. `cut` says why, when the window was to be longer."""
        if not self.recording:
            return
        if not self.on_its_thread():
            raise WindowError("the window was begun on another thread, and only that one can end it")
        self.recording = False
        self._end_step()
        self._read_clocks()
        self.stop_ns = self._pairs[-1].mono_ns
        # Metadata must be in before the stop; a key given again takes the place of the first.
        about_window = {
            "start_ns": self.start_ns,
            "stop_ns": self.stop_ns,
            "cut": cut,
            "activities": sorted(self.activities),
        }
        self._profile.add_metadata_json(schema.WINDOW_IDENTITY_KEY, self._about())
        self._profile.add_metadata_json(schema.WINDOW_KEY, json.dumps(about_window))
        self._profile.stop_trace()
        results = getattr(self._profile.profiler, "kineto_results", None)
        if results is not None and results.trace_start_ns() == 0:
            # To export this would end the process: the results point nowhere.
            raise WindowError("another torch.profiler was started within the window and took its events")

    def write(self, path: Path) -> int:
        """Write uncompressed JSON; `path` never names a part of a file. Returns its bytes.

        `path` was claimed before. Holds the interpreter lock: 7 to 14 ms for each MB, after
        11 to 25 in `stop`.
        """
        temporary = _temporary(path)
        try:
            self._profile.export_chrome_trace(str(temporary))
            size = _size_of_whole_trace(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
            # Newer versions of torch write to a temporary file of their own, and leave it when they fail.
            temporary.with_name(temporary.name + ".tmp").unlink(missing_ok=True)
        return size

    def close(self) -> None:
        """Let go of the events; stops first, when the window still runs and this is its thread."""
        try:
            if self.on_its_thread():
                self.stop()
        finally:
            # The profile object stands in reference cycles of its own making; what it holds
            # would stay until the garbage collector comes by.
            self._profile.profiler = None

    def _refuse_a_second(self) -> None:
        # torch does not refuse a second profiler. It takes the first one's session away, and
        # the export of the first one then ends the process with a segmentation fault.
        if getattr(self._torch.autograd.profiler, "_is_profiler_enabled", False):
            raise WindowError("another torch.profiler is active in this process")

    def _end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def _read_clocks(self) -> None:
        self._pairs.append(clock.read_pair())

    def _about(self) -> str:
        return json.dumps(schema.window_identity(self._identity, self._pairs))


def claim(path: Path) -> bool:
    """Whether the trace file `path` is this process's to write: nobody has it, compressed or in the making.

    Its temporary file is created, which holds the claim until `Window.write`. Raises `OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    except FileExistsError:
        return False
    # In this order: a file is compressed before it goes.
    if path.exists() or path.with_name(path.name + ".gz").exists():
        temporary.unlink()
        return False
    return True


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")


def supported_activities(names: tuple[str, ...]) -> dict[str, str]:
    """Of `names`, those this machine can record; each with its name in torch.

    Raises `WindowError` when none is left.
    """
    import torch

    profiler: Any = torch.profiler
    possible = {a.name.lower(): a.name for a in profiler.supported_activities()}
    chosen = {n: possible[n] for n in names if n in possible}
    if not chosen:
        raise WindowError(
            f"none of the activities {', '.join(names)} can be recorded here; allowed: {', '.join(possible)}"
        )
    return chosen


def _size_of_whole_trace(path: Path) -> int:
    """Bytes of the file at `path`.

    torch says nothing when the disk is full. A whole file ends with the key ``traceName``.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            tail = file.read()
    except FileNotFoundError:
        raise WindowError("torch wrote no file: is the disk full?") from None
    if b'"traceName"' not in tail or not tail.rstrip().endswith(b"}"):
        raise WindowError("the file is not whole: is the disk full?")
    return size


def resident_bytes() -> int:
    """Host memory of this process in bytes; 0 where the kernel does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
