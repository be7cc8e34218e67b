"""The demo: a small but real RL loop, from one command to a merged timeline."""

from ._bare import BareRun, ProcessSetup, RolloutDone, run_bare
from ._cluster import DemoError
from ._settings import Settings
from .driver import DemoResult, run_demo

__all__ = [
    "BareRun",
    "DemoError",
    "DemoResult",
    "ProcessSetup",
    "RolloutDone",
    "Settings",
    "run_bare",
    "run_demo",
]
