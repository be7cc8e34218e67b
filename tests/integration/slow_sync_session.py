"""Runs one demo whose sync after rollout 3 is, for the driver's clock, the only slow one.

A process of its own, so that the tests' own process never meets Ray. Prints one JSON object.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

from slime_profiler_plugin.demo import Settings, run_demo
from slime_profiler_plugin.record import _slow_syncs

SETTINGS = Settings(rollouts=8, engines=1, steps=1)
SLOW = 3
CONFIG = """
profiler:
  roles: [actor]
  ranks: all
  activities: [cpu]
  schedule: null
  trigger: {min_syncs: 2}
"""


def main(out: Path) -> None:
    config = out / "trigger.yaml"
    config.write_text(CONFIG)
    ended = _slow_syncs.SlowSyncs.ended
    # The first, before rollout 0, is none.
    planted = itertools.chain([100], [10] * SLOW, [16], itertools.repeat(10))
    _slow_syncs.SlowSyncs.ended = lambda self, _took_ns: ended(self, next(planted) * 10**9)  # type: ignore[method-assign]
    result = run_demo(out / "runs", SETTINGS, str(config))
    assert result.merged is not None
    told = {"run_folder": str(result.run_folder), "exit_code": result.merged.exit_code()}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
