"""Many damaged files through reader, merge, check and check --fix: no crash, no hang, no silent loss.

``python tests/fuzz/fuzz.py CASES`` runs the cases 0 to CASES - 1 (``--first N``: from N on) and prints how
many ended how; the exit status is 1 when one failed. ``python tests/fuzz/fuzz.py --case N`` runs one again,
here, with its traceback.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
sys.path[:0] = [str(_ROOT), str(_HERE), str(_HERE.parent)]

#: CPU that one case may take before it counts as hanging. Most take milliseconds, a bomb of 80 MB, which is
#: read six times, up to 20 s, and twice that beside other work.
LONGEST_S = 60
#: Address space of a process that runs cases: what bombs meet.
MEMORY_BYTES = 1 << 30
CASES = 10_000
_FAILED = "FAILED"


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", type=int, nargs="?", default=CASES)
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--case", type=int, help="this one only, here")
    parser.add_argument(
        "--child", type=int, nargs=3, help=argparse.SUPPRESS, metavar=("FIRST", "STEP", "END")
    )
    options = parser.parse_args()
    if options.child:
        return run_here(range(*_order(options.child)))
    if options.case is not None:
        return run_one(options.case)
    start = time.monotonic()
    outcomes, failures = run_cases(options.cases, options.first)
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(f"{options.cases} cases in {time.monotonic() - start:.0f} s: {told}; {len(failures)} failed")
    for number, reason in sorted(failures.items()):
        print(f"  python tests/fuzz/fuzz.py --case {number}: {reason}")
    return 1 if failures else 0


def run_cases(cases: int, first: int = 0) -> tuple[Counter[str], dict[int, str]]:
    """How many of the cases ended how, and why others failed; one process for each core."""
    workers = os.cpu_count() or 1
    outcomes: Counter[str] = Counter()
    failures: dict[int, str] = {}
    with ThreadPoolExecutor(workers) as pool:
        for told in pool.map(
            lambda number: _run_children(number, workers, first + cases), range(first, first + workers)
        ):
            outcomes.update(told[0])
            failures.update(told[1])
    return outcomes, failures


def _run_children(first: int, step: int, end: int) -> tuple[Counter[str], dict[int, str]]:
    """Cases `first`, `first` + `step`, …; where a process dies, the next goes on behind that case."""
    outcomes: Counter[str] = Counter()
    failures: dict[int, str] = {}
    while first < end:
        command = [sys.executable, __file__, "--child", str(first), str(step), str(end)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        lines = done.stdout.splitlines()
        current = first
        for line in lines:
            number, _, outcome = line.partition(" ")
            current = int(number)
            if outcome.startswith(_FAILED):
                failures[current] = outcome.removeprefix(_FAILED).strip()
            elif outcome:
                outcomes[outcome] += 1
        if done.returncode == 0:
            break
        failures[current] = f"the process died with {done.returncode}: {done.stderr[-300:]}"
        first = current + step
    return outcomes, failures


def run_here(cases: range) -> int:
    """Each case: its number when it starts, and again with its outcome; under the limits."""
    from fuzz_check import run_case

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with tempfile.TemporaryDirectory() as folder:
        for number in cases:
            print(number, flush=True)
            # The kernel ends the process at this: a hang in compiled code too.
            used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
            resource.setrlimit(resource.RLIMIT_CPU, (int(used) + LONGEST_S + 1, resource.RLIM_INFINITY))
            try:
                outcome = run_case(number, Path(folder))
            except Exception as error:  # noqa: BLE001 - what it is, is what is looked for
                outcome = f"{_FAILED} {type(error).__name__}: {' '.join(str(error).split())[:300]}"
            print(number, outcome, flush=True)
    return 0


def run_one(number: int) -> int:
    """Say what the case is, and let what it raises through."""
    from fuzz_cases import make_case
    from fuzz_check import run_case

    case = make_case(number)
    print(f"{case.seed.name}, {len(case.data)} bytes, {' + '.join(case.how)}, partner: {bool(case.partner)}")
    with tempfile.TemporaryDirectory() as folder:
        print(run_case(number, Path(folder)))
    return 0


def _order(child: list[int]) -> tuple[int, int, int]:
    first, step, end = child
    return first, end, step


if __name__ == "__main__":
    sys.exit(main())
