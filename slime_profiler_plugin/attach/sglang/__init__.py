"""Joins SGLang's engines: what they do with weights, and profiler windows by rollout."""

from ._register import register
from ._targets import TARGETS
from ._windows import EngineWindows, refuse_window

__all__ = ["TARGETS", "EngineWindows", "refuse_window", "register"]
