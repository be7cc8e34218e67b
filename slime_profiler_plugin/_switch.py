"""The variables that switch recording on, and whether one does, without reading what it names.

`config` takes 50 ms to import; who only asks whether to attach does without. The file that Python loads in
each process, `attach/autoload/sitecustomize.py`, has these words again: off, it imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: A shipped name, a path, or ``off``.
SWITCH_VARIABLE: Final = "SLIME_PROFILER"
#: ``1`` means the shipped configuration ``timeline``.
TIMELINE_VARIABLE: Final = "SLIME_COMMUNICATION_TIMELINE"
OFF: Final = "off"
#: In any case. What people say elsewhere must not switch on, or be a name nobody knows.
OFF_WORDS: Final = (OFF, "0", "false", "no", "none")


def is_off(text: str) -> bool:
    """Whether a value of ``SLIME_PROFILER`` says off.

    >>> [is_off(text) for text in ("OFF ", "0", "timeline", "")]
    [True, True, False, False]
    """
    return text.strip().lower() in OFF_WORDS


def may_record(environ: Mapping[str, str]) -> bool:
    """Whether `environ` switches recording on, if what it names can be used.

    >>> may_record({"SLIME_PROFILER": "off", "SLIME_COMMUNICATION_TIMELINE": "1"}), may_record({})
    (False, False)
    """
    switch = environ.get(SWITCH_VARIABLE, "").strip()
    return not is_off(switch) if switch else environ.get(TIMELINE_VARIABLE, "") not in ("", "0")
