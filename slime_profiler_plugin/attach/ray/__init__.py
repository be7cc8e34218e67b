"""Ray: its drivers and actors are recorded, its nodes are asked, its own timeline is collected.

Every process that inherits the environment imports this: what only the doctor asks stays in `_cluster`.
"""

from ._attach import register
from ._targets import TARGETS

__all__ = ["TARGETS", "register"]
