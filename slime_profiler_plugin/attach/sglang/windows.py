"""Profiler windows of engines by rollout, over their own HTTP endpoint.

Asked for by whoever hands out the rollouts. Each window has a number of forward passes, after which SGLang
writes it by itself: there is no moment at which nobody waits for the engine, and its end blocks it. Nothing
here waits for an engine: a thread asks.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, Final

from slime_profiler_plugin._timeline import timeline
from slime_profiler_plugin.attach._failures import FAILURE, failed, is_theirs
from slime_profiler_plugin.config import Profiler, Schedule, selects_rank
from slime_profiler_plugin.layout import RunPaths, rollout_name

from ._window_id import engine_name, window_id

#: Seconds per byte of JSON that the end of a window takes: to convert it (25 ms for each MB), to write it
#: (14), to read it and to compress it in Python (60).
_EXPORT_S_PER_BYTE: Final = 1.0e-7
_ROLE: Final = "engine"
_ACTIVITIES: Final = {"cpu": "CPU", "cuda": "GPU"}
#: The answer to the end of a window that does not run.
_NOT_RUNNING: Final = 500
#: An engine that is loaded answers late.
_ASK_S: Final = 60.0


class EngineError(RuntimeError):
    """An engine did not do what it was asked."""


def estimate_export_s(profiler: Profiler) -> float:
    """How long the end of a window will block an engine, in seconds.

    >>> estimate_export_s(Profiler())
    6.0
    """
    return round(profiler.engine.num_steps * profiler.engine.step_bytes * _EXPORT_S_PER_BYTE, 1)


def refuse_window(profiler: Profiler) -> str | None:
    """Why windows of engines are not opened with these settings; ``None`` when they are.

    >>> from slime_profiler_plugin.config import EngineWindow
    >>> refuse_window(Profiler(engine=EngineWindow(num_steps=200)))
    'the export of 200 steps is expected to take 60 s, and an engine that is silent for 30 s is killed'
    >>> refuse_window(Profiler(engine=EngineWindow(num_steps=200, force=True)))
    """
    settings, expected = profiler.engine, estimate_export_s(profiler)
    if settings.force or expected <= settings.health_check_s:
        return None
    return (
        f"the export of {settings.num_steps} steps is expected to take {expected:g} s, "
        f"and an engine that is silent for {settings.health_check_s:g} s is killed"
    )


def describe_windows(profiler: Profiler) -> str | None:
    """What becomes of windows of engines with these settings; ``None`` when none are asked for.

    >>> describe_windows(Profiler(roles=("engine",)))
    '20 steps, whose export is expected to take 6 s'
    """
    if _ROLE not in profiler.roles:
        return None
    refusal = refuse_window(profiler)
    if refusal is not None:
        return f"refused: {refusal}"
    expected = estimate_export_s(profiler)
    return f"{profiler.engine.num_steps} steps, whose export is expected to take {expected:g} s"


def begins_window(schedule: Schedule | None, step: int) -> bool:
    """Whether a window begins with the rollout that is number `step`, as torch.profiler counts.

    >>> [step for step in range(9) if begins_window(Schedule(wait=1, skip_first=2, repeat=2, active=2), step)]
    [3, 6]
    """
    if schedule is None:
        return False
    step -= schedule.skip_first
    if step < 0:
        return False
    cycle, place = divmod(step, schedule.wait + schedule.warmup + schedule.active)
    return place == schedule.wait + schedule.warmup and (not schedule.repeat or cycle < schedule.repeat)


class EngineWindows:
    """Windows of the engines of a run, for the process that hands out the rollouts; it must be recording.

    Nothing when the configuration has no profiler whose `roles` name ``engine``. `ranks` chooses among the
    engines: the first, unless it says otherwise. Failures are told once and counted.
    """

    def __init__(self) -> None:
        self._step = -1
        self._rollout: int | None = None
        #: Of the recorder, whether the driver asks for a window.
        self._requests: tuple[object, Callable[[int], bool]] | None = None
        #: URLs that were asked for a window of which nobody knows that it has ended.
        self._asked: set[str] = set()
        #: By URL, the last of the threads that ask it; each waits for the one before.
        self._threads: dict[str, threading.Thread] = {}

    def on_rollout(self, rollout: int, urls: Sequence[str]) -> None:
        """`rollout` begins; `urls` are those of all engines, in the order of their indices.

        Returns at once.
        """
        try:
            self._begin(rollout, urls)
        except FAILURE as error:
            if is_theirs(error):
                raise
            failed("engine windows", error)

    def is_asking(self) -> bool:
        """Whether an engine has not answered yet."""
        return any(thread.is_alive() for thread in self._threads.values())

    def close(self, timeout_s: float = _ASK_S) -> None:
        """End the windows that still run, and wait for what was asked, `timeout_s` at most."""
        for url in sorted(self._threads):
            self._in_thread(url, self._end)
        end = time.monotonic() + timeout_s
        for thread in self._threads.values():
            thread.join(max(0.0, end - time.monotonic()))
        self._threads.clear()

    def _begin(self, rollout: int, urls: Sequence[str]) -> None:
        recorder = timeline._recorder
        profiler = None if recorder is None else recorder._part.config.profiler
        if recorder is None or profiler is None or _ROLE not in profiler.roles or rollout == self._rollout:
            return
        self._rollout, self._step = rollout, self._step + 1
        if self._requests is None or self._requests[0] is not recorder:
            self._requests = recorder, recorder.window_requests()
        is_asked = self._requests[1](rollout)
        if not is_asked and not begins_window(profiler.schedule, self._step):
            return
        refusal = refuse_window(profiler)
        if refusal is not None:
            raise EngineError(f"no windows: {refusal}; set profiler.engine.force to open them all the same")
        paths = recorder._part.paths
        for index, url in enumerate(urls):
            if selects_rank(profiler.ranks, index, len(urls)):
                request = window_request(profiler, paths, rollout, index)
                self._in_thread(url.rstrip("/"), self._open, request)

    def _in_thread(self, url: str, work: Callable[..., None], *arguments: Any) -> None:
        before = self._threads.get(url)

        def run() -> None:
            try:
                if before is not None:
                    before.join()
                work(url, *arguments)
            except FAILURE as error:
                if is_theirs(error):
                    raise
                failed("engine windows", error)

        thread = threading.Thread(target=run, name="slime_profiler engine windows", daemon=True)
        self._threads[url] = thread
        thread.start()

    def _open(self, url: str, request: dict[str, Any]) -> None:
        # Of a second window SGLang takes neither name nor steps, and loses the first: it ends before.
        self._end(url)
        self._asked.add(url)
        status = ask(f"{url}/start_profile", request)
        if status != http.client.OK:
            raise EngineError(f"the engine answers {status} to start_profile")

    def _end(self, url: str) -> None:
        if url not in self._asked:
            return
        status = ask(f"{url}/stop_profile", {})
        self._asked.discard(url)
        if status not in (http.client.OK, _NOT_RUNNING):
            raise EngineError(f"the engine answers {status} to stop_profile")


def window_request(profiler: Profiler, paths: RunPaths, rollout: int, index: int) -> dict[str, Any]:
    """What engine `index` is asked."""
    return {
        "output_dir": str(paths.traces / rollout_name(rollout) / engine_name(index)),
        "profile_id": window_id(rollout, index),
        "num_steps": profiler.engine.num_steps,
        "activities": [_ACTIVITIES[name] for name in profiler.activities if name in _ACTIVITIES],
        "with_stack": profiler.with_stack,
        "record_shapes": profiler.record_shapes,
        "merge_profiles": False,
    }


def ask(url: str, body: dict[str, Any]) -> int:
    """The status of the answer. Past any proxy: an engine is inside. Raises `OSError` when there is none."""
    request = urllib.request.Request(
        url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}, method="POST"
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_ASK_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
