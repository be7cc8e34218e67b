"""The entry point: SGLang calls it in its main process and in each scheduler, before it makes anything."""

from __future__ import annotations

import os
from typing import Final

from slime_profiler_plugin._switch import may_record

_registered: Final[list[bool]] = []


def register() -> None:
    """Wrap what is in `TARGETS`; nothing when no switch is set. A second call does nothing.

    Recording begins in the schedulers alone, once one knows its ranks. A setting that cannot be used is told
    there, and nothing is recorded: reading it here would cost every attached process 50 ms.
    """
    if _registered or not may_record(os.environ):
        return
    _registered.append(True)
    from slime_profiler_plugin.attach._wrap import wrap

    from ._hooks import HOOKS

    for target, around in HOOKS.items():
        wrap(target, around)


def forget() -> None:
    """The next `register` wraps again; for tests, after `unwrap_all`."""
    _registered.clear()
