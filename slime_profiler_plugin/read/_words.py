"""What the parts that look at traces must take alike: ids, and names that torch.profiler gives."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Final

from msgspec import UNSET

#: Processes that torch.profiler invents, in order, below the real ones.
INVENTED_PIDS: Final = ("Spans", "Traces", "")
#: Of what a device did; those with capitals are of torch before 1.13.
KERNEL_CATEGORIES: Final = frozenset({"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"})
#: Of more digits than any system gives, and few enough for Python's own conversion.
_NUMBER: Final = re.compile(r"-?[0-9]{1,30}")
_GPU: Final = re.compile(r"GPU (\d+)")


def plain_id(value: Hashable) -> Hashable:
    """A pid or tid, the same for ``"7"`` and 7; ``None`` where there is none.

    >>> plain_id("7"), plain_id(7), plain_id("stream 7"), plain_id("")
    (7, 7, 'stream 7', '')
    """
    if value is UNSET:
        return None
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def device_of_label(label: str) -> int | None:
    """The device whose events are in a process that torch.profiler labels so, ``None`` where it is none.

    >>> device_of_label("GPU 3"), device_of_label("CPU")
    (3, None)
    """
    match = _GPU.fullmatch(label)
    return int(match[1]) if match else None
