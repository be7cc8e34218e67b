"""Which monotonic clock a process reads."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def read_clock_domain(proc: Path = _PROC) -> str:
    """Name of this process's monotonic clock: boot id and time namespace.

    Two processes whose names are equal read the same clock, so their offset is exactly 0.
    Containers of one host share both; a process in a time namespace of its own does not
    (time_namespaces(7)). Where the kernel does not say, the name is unique to this process,
    so that nobody is taken to share its clock.
    """
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"unknown-{os.urandom(16).hex()}"
    try:
        namespace = os.readlink(proc / "self/ns/time")
    except OSError:  # a kernel before 5.6 has no time namespaces: one clock per boot
        return boot
    return f"{boot}/{namespace}"
