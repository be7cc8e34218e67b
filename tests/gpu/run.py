"""Runs the checks that need a GPU, and says what each one saw. Under five minutes.

``python tests/gpu/run.py [check …]``: exit status 0 when none failed; where there is no
GPU it says why, and that is 0 too.
"""

from __future__ import annotations

import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from checks import CHECKS, Skip, why_no_gpu  # noqa: E402 - found through the paths above


def main(names: list[str]) -> int:
    """Run the checks of these names, or all."""
    known = {check.__name__: check for check in CHECKS}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no such check: {', '.join(unknown)}; there are: {', '.join(known)}")  # noqa: T201
        return 2
    reason = why_no_gpu()
    if reason is not None:
        print(f"skipped: {reason}")  # noqa: T201
        return 0
    failed = 0
    for name in names or known:
        begin = time.perf_counter()
        try:
            result = f"ok       {known[name]()}"
        except Skip as skip:
            result = f"skipped  {skip}"
        except Exception as error:  # noqa: BLE001 - one failed check must not hide the others
            failed += 1
            traceback.print_exc()
            result = f"FAILED   {type(error).__name__}: {error}"
        print(f"{name} ({time.perf_counter() - begin:.0f} s): {result}", flush=True)  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
