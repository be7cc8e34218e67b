"""Records what every process of an RL run was doing, and shows it as one honest timeline."""

from ._timeline import timeline
from .phases import define_phase

__version__ = "0.1.0"

__all__ = ["__version__", "define_phase", "timeline"]
