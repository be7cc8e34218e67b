"""The demo: a small but real RL loop, from one command to a merged timeline."""

from ._bare import BareRun, ProcessSetup, RolloutDone, run_bare
from ._cluster import DemoError
from ._settings import TRANSPORTS, Settings
from .driver import DemoResult, run_demo, run_transports

__all__ = [
    "TRANSPORTS",
    "BareRun",
    "DemoError",
    "DemoResult",
    "ProcessSetup",
    "RolloutDone",
    "Settings",
    "run_bare",
    "run_demo",
    "run_transports",
]
