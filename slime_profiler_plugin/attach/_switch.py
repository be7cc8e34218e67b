"""Whether a switch is set, without reading what it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The words of `config`, for its variables and for off; that module takes 50 ms to import.
SWITCH: Final = "SLIME_PROFILER"
_TIMELINE: Final = "SLIME_COMMUNICATION_TIMELINE"
_OFF: Final = frozenset({"off", "0", "false", "no", "none"})


def may_record(environ: Mapping[str, str]) -> bool:
    """Whether `environ` switches recording on, if what it names can be used.

    >>> may_record({"SLIME_PROFILER": "off", "SLIME_COMMUNICATION_TIMELINE": "1"}), may_record({})
    (False, False)
    """
    switch = environ.get(SWITCH, "").strip().lower()
    return switch not in _OFF if switch else environ.get(_TIMELINE, "") not in ("", "0")
