"""Joins slime: its driver, its trainer ranks, its rollout manager and the clients of its engines.

Ray's calls, collectives and results stay what they are; nothing here calls an actor or communicates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._register import register

if TYPE_CHECKING:
    from ._targets import TARGETS

__all__ = ["TARGETS", "register"]


def __getattr__(name: str) -> Any:
    if name != "TARGETS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _targets

    return _targets.TARGETS
