"""NVTX ranges: a cached domain, one registered string per phase name.

The nvtx package hands out a domain of no-ops when no tool is attached to the process; then
there is nothing to do, now or later: tools are attached at process start.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

DOMAIN: Final = "slime_profiler"
#: Registered strings are never freed; a program that makes up names must not leak them.
MOST_NAMES: Final = 4096
OTHER: Final = "other"


class _Attributes(dict[str, Any]):
    """Event attributes by phase name, made at first use."""

    def __init__(self, domain: Any) -> None:
        self._domain = domain

    def __missing__(self, name: str) -> Any:
        if len(self) >= MOST_NAMES and name != OTHER:
            return self[OTHER]
        attributes = self[name] = self._domain.get_event_attributes(message=name)
        return attributes


class NvtxRanges:
    """Push/pop ranges nest per thread; start/end ranges stand free."""

    def __init__(self, domain: Any) -> None:
        self.attributes = _Attributes(domain)
        self.push = domain.push_range
        self.pop = domain.pop_range
        self.start = domain.start_range
        self.end = domain.end_range


def open_nvtx() -> NvtxRanges | None:
    """Ranges of our domain; ``None`` when no tool is attached.

    Raises `ImportError` without the nvtx package.
    """
    nvtx = importlib.import_module("nvtx")
    domain = nvtx.get_domain(DOMAIN)
    # Told apart by name: the class has moved between nvtx's modules.
    return None if type(domain).__name__ == "DummyDomain" else NvtxRanges(domain)
