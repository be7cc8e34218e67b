"""The demo's bare processes, without Ray, for Nsight Systems to watch.

python nsys_demo.py OUT
"""

from __future__ import annotations

import sys
from pathlib import Path

from nsys_shim import show_the_tool

from slime_profiler_plugin.demo import ProcessSetup, Settings, run_bare
from slime_profiler_plugin.demo.driver import shared_environment


def main(out: Path) -> None:
    """Two trainers and an engine, recorded with the configuration that is meant for this."""
    environment = shared_environment(out, "nsys")
    run_bare(Settings(rollouts=2, engines=1), ProcessSetup(environment=environment, prepare=show_the_tool))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
