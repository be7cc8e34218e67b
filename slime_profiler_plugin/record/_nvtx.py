"""NVTX ranges: a cached domain, one registered string per phase name, the rollout as payload.

The nvtx package hands out a domain of no-ops when no tool is attached to the process; then
there is nothing to do, now or later: tools are attached at process start.

`nsys stats --report nvtxsum` groups by name, so that a name must not contain the rollout.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import multiprocessing
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from slime_profiler_plugin import phases, schema
from slime_profiler_plugin._timeline import IMPORTED_IN
from slime_profiler_plugin.clock import read_pair

#: Registered strings are never freed; a program that makes up names must not leak them.
MOST_NAMES: Final = 4096
OTHER: Final = "other"
#: Rollouts whose attributes are kept: a program that overlaps rollouts goes back and forth between a few.
MOST_ROLLOUTS: Final = 8
#: NVTX's own variable: a tool that wants the ranges of a process sets it before the start.
INJECTION_VARIABLES: Final = ("NVTX_INJECTION64_PATH", "NVTX_INJECTION32_PATH")
_CLOCK_MARK: Final = "slime.clock"
_CLOCK_PERIOD_NS: Final = 1_000_000_000
#: The payload is an int64.
_PAYLOADS: Final = 1 << 63


class ToolUnseenError(RuntimeError):
    """A tool waits for this process's ranges, and the nvtx package does not see it."""


class _Names(dict[str, tuple[str, int]]):
    """The registered name and the category id of each phase name, made at first use."""

    def __init__(self, domain: Any) -> None:
        self._domain = domain

    def __missing__(self, name: str) -> tuple[str, int]:
        if len(self) >= MOST_NAMES and name != OTHER:
            return self[OTHER]
        category = self._domain.get_category_id(phases.phase_group(name))
        known = self[name] = (name, category)
        return known


class _Attributes(dict[str, Any]):
    """Event attributes by phase name, all of one rollout, made at first use."""

    def __init__(self, domain: Any, names: _Names, rollout: schema.Rollout) -> None:
        self._domain = domain
        self._names = names
        #: ``initial`` and no rollout have no payload: it is a number.
        self._payload = rollout if isinstance(rollout, int) and rollout < _PAYLOADS else None

    def __missing__(self, name: str) -> Any:
        known, category = self._names[name]
        if known != name:  # too many names by now
            return self[known]
        attributes = self[name] = self._domain.get_event_attributes(
            message=name, category=category, payload=self._payload
        )
        return attributes


class _ByRollout(dict[schema.Rollout, _Attributes]):
    """Attributes by rollout, then by phase name, of the rollouts that were new last."""

    def __init__(self, domain: Any) -> None:
        self._domain = domain
        self._names = _Names(domain)

    def __missing__(self, rollout: schema.Rollout) -> _Attributes:
        for oldest in list(self)[: max(0, len(self) + 1 - MOST_ROLLOUTS)]:
            self.pop(oldest, None)
        attributes = self[rollout] = _Attributes(self._domain, self._names, rollout)
        return attributes


class NvtxRanges:
    """Push/pop ranges nest per thread; start/end ranges stand free."""

    def __init__(self, domain: Any) -> None:
        self._domain = domain
        self._marked_ns = -_CLOCK_PERIOD_NS
        #: `attributes[rollout][name]`.
        self.attributes = _ByRollout(domain)
        self.push = domain.push_range
        self.pop = domain.pop_range
        self.start = domain.start_range
        self.end = domain.end_range

    def mark_clock(self) -> None:
        """Put our clocks into the report, at most once a second.

        The mark's name is ``slime.clock unix_ns=… mono_ns=…``, its payload the ns that passed between
        reading them and the mark itself: the mark stands at ``unix_ns`` + payload of our clock. Each name is
        a registered string, hence not more often.
        """
        if time.monotonic_ns() - self._marked_ns < _CLOCK_PERIOD_NS:
            return
        clock = read_pair()
        self._marked_ns = clock.mono_ns
        attributes = self._domain.get_event_attributes(
            message=f"{_CLOCK_MARK} unix_ns={clock.unix_ns} mono_ns={clock.mono_ns}"
        )
        attributes.payload = time.monotonic_ns() - clock.mono_ns
        self._domain.mark(attributes)


def open_nvtx(environ: Mapping[str, str]) -> NvtxRanges | None:
    """Ranges of our domain; ``None`` when no tool is attached.

    Raises `ImportError` without the nvtx package, and `ToolUnseenError` when a tool is attached
    all the same, by `environ`, or when this process was forked from one that a tool is attached to.
    """
    variable = next((name for name in INJECTION_VARIABLES if environ.get(name)), None)
    if variable is not None and _was_forked():
        # Under Nsight Systems 2022.4, nvtx dies of it (SIGSEGV); no release follows such a process unasked.
        raise ToolUnseenError(
            f"{variable} says that a tool wants NVTX ranges, but this process was forked, where using nvtx "
            "can end it. Start it with spawn (docs/nsight.md)"
        )
    nvtx = importlib.import_module("nvtx")
    domain = nvtx.get_domain(phases.NVTX_DOMAIN)
    # Told apart by name: the class has moved between nvtx's modules.
    if type(domain).__name__ != "DummyDomain":
        ranges = NvtxRanges(domain)
        ranges.mark_clock()
        return ranges
    if variable is not None:
        raise ToolUnseenError(
            f"{variable} says that a tool wants NVTX ranges, but nvtx {_version()} does not see it. Nsight "
            "Systems 2022.4 is too old for it; use a newer one (docs/nsight.md)"
        )
    return None


def _was_forked() -> bool:
    """Whether this process is a copy of another one, as far as Python knows."""
    if os.getpid() != IMPORTED_IN:
        return True
    # A child that was spawned has its parent's program under this name.
    return multiprocessing.parent_process() is not None and "__mp_main__" not in sys.modules


def _version() -> str:
    try:
        return importlib.metadata.version("nvtx")
    except importlib.metadata.PackageNotFoundError:
        return "(of unknown version)"
