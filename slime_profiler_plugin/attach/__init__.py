"""Joins Megatron, Ray, SGLang and slime where they can be joined, without changing what they do.

Names are looked up when they are asked for: a process that only attaches imports no more than that takes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ._doctor import Findings, examine, format_findings
    from ._environment import (
        AUTOLOAD_FOLDER,
        EnvironmentUsageError,
        add_to_runtime_env,
        environment_for,
        shell_lines,
    )
    from ._frameworks import attach_all
    from ._slime_arguments import wait_for_slime_arguments
    from ._wrap import unwrap_all
    from .ray._cluster import ClusterError, NodeReport, format_nodes, survey_cluster

_HOMES: Final = {
    "AUTOLOAD_FOLDER": "_environment",
    "ClusterError": "ray._cluster",
    "EnvironmentUsageError": "_environment",
    "Findings": "_doctor",
    "NodeReport": "ray._cluster",
    "add_to_runtime_env": "_environment",
    "attach_all": "_frameworks",
    "environment_for": "_environment",
    "examine": "_doctor",
    "format_findings": "_doctor",
    "format_nodes": "ray._cluster",
    "shell_lines": "_environment",
    "survey_cluster": "ray._cluster",
    "unwrap_all": "_wrap",
    "wait_for_slime_arguments": "_slime_arguments",
}

__all__ = [
    "AUTOLOAD_FOLDER",
    "ClusterError",
    "EnvironmentUsageError",
    "Findings",
    "NodeReport",
    "add_to_runtime_env",
    "attach_all",
    "environment_for",
    "examine",
    "format_findings",
    "format_nodes",
    "shell_lines",
    "survey_cluster",
    "unwrap_all",
    "wait_for_slime_arguments",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
