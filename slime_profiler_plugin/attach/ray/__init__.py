"""Ray: its drivers and actors are recorded, its nodes are asked, its own timeline is collected."""

from ._attach import register
from ._cluster import ClusterError, NodeReport, format_nodes, survey_cluster
from ._targets import TARGETS

__all__ = [
    "TARGETS",
    "ClusterError",
    "NodeReport",
    "format_nodes",
    "register",
    "survey_cluster",
]
