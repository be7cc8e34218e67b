"""The first line of a record file."""

from __future__ import annotations

import platform
import sys

from slime_profiler_plugin import schema
from slime_profiler_plugin.config import Config
from slime_profiler_plugin.identity import ProcessIdentity


def process_line(identity: ProcessIdentity, config: Config) -> schema.Process:
    """Who this process is, and how it records."""
    return schema.Process(
        run_id=identity.run_id,
        attempt=identity.attempt,
        host=identity.host,
        pid=identity.pid,
        incarnation=identity.incarnation,
        start_ns=identity.start_ns,
        start_unix_ns=identity.start_unix_ns,
        clock_domain=identity.clock_domain,
        role=identity.role,
        rank=identity.rank,
        ranks=dict(identity.ranks),
        world_size=identity.world_size,
        engine=dict(identity.engine),
        versions=_versions(),
        config=config.public(),
        period_s=config.records.period_s,
    )


def _versions() -> dict[str, str]:
    """Of Python, of us, and of torch if the program has loaded it by now."""
    versions = {"python": platform.python_version()}
    for module in ("slime_profiler_plugin", "torch"):
        version = getattr(sys.modules.get(module), "__version__", None)
        if version is not None:
            versions[module] = str(version)
    return versions
