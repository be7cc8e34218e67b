"""Joins Megatron-Core to the timeline, with or without slime."""

from ._functions import TARGETS
from ._instrument import instrument, register
from ._ranks import tell_ranks

__all__ = ["TARGETS", "instrument", "register", "tell_ranks"]
