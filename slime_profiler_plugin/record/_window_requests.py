"""Profiler windows that the driver asks for: the files that say so, and who looks for them.

One small file for each window, made whole or not at all. A process reads them in its writer thread, which is
asked to as each rollout begins, and uses what was found as the next one begins: its training thread waits for
no file system, and nobody polls. So a window is asked for some rollouts ahead, and who still learns of it too
late goes without, and says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from slime_profiler_plugin.identity import create_whole

from ._part import PartContext

#: Does something in the writer's thread, under a name by which its failure is told.
RunInWriter: TypeAlias = "Callable[[str, Callable[[], object]], None]"

PART: Final = "trigger"
TOO_LATE: Final = "window asked for by the driver: seen too late"
NONE_LEFT: Final = "window not asked for: the attempt has had all that profiler.trigger.windows allows"


class WindowRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The window of `rollout`, and why the driver asks for it in rollout `asked_in`.

    A sync took `took_ns`; of the `syncs` before it the 95th percentile is `p95_ns`. `at_unix_ns`: when.
    """

    rollout: int
    asked_in: int
    took_ns: int
    p95_ns: int
    syncs: int
    at_unix_ns: int


def publish(part: PartContext, request: WindowRequest, most: int) -> None:
    """Make the attempt's next file, of `most`; count it where there are that many. Raises `OSError`."""
    process = part.identity
    content = msgspec.json.encode(request) + b"\n"
    for number in range(most):
        path = part.paths.trigger_file(process.attempt, number)
        if create_whole(path, content, process.incarnation):
            return
    part.drop("trace", NONE_LEFT)


class WindowRequests:
    """What one process knows of the windows that are asked for; `takes` is for the thread of its rollouts."""

    def __init__(self, part: PartContext, most: int, run: RunInWriter) -> None:
        self._part = part
        self._most = most
        self._run = run
        self._read = 0
        #: From the writer's thread.
        self._found: deque[WindowRequest] = deque()
        self._waiting: list[WindowRequest] = []
        self._first: int | None = None

    def takes(self, rollout: int) -> bool:
        """Whether a window is asked for in `rollout`, which begins. Has the writer look for later ones.

        One whose rollout has passed is counted as seen too late; where it had passed before this process
        began its first rollout, it is none of its business.
        """
        first = self._first = rollout if self._first is None else self._first
        while self._found:
            self._waiting.append(self._found.popleft())
        passed = [request for request in self._waiting if first <= request.rollout < rollout]
        if passed:
            self._part.drop("trace", TOO_LATE, len(passed))
        is_asked = any(request.rollout == rollout for request in self._waiting)
        self._waiting = [request for request in self._waiting if request.rollout > rollout]
        self._run(PART, self._look)
        return is_asked

    def _look(self) -> None:
        while self._read < self._most:
            content = _read(self._part.paths.trigger_file(self._part.identity.attempt, self._read))
            if content is None:
                return
            self._read += 1  # also where it is none: the next look is for the next
            self._found.append(msgspec.json.decode(content, type=WindowRequest))


def _read(path: Path) -> bytes | None:
    """The file at `path`; ``None`` while it is not there, or not whole."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    return content if content.endswith(b"\n") else None
