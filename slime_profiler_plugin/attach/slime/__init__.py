"""Joins slime: its driver, its trainer ranks, its rollout manager and the clients of its engines.

Ray's calls, collectives and results stay what they are; nothing here calls an actor or communicates.
"""

from ._register import register
from ._targets import TARGETS

__all__ = ["TARGETS", "register"]
