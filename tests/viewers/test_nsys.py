"""Nsight Systems itself records our phases as NVTX ranges."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

pytestmark = [pytest.mark.timeout(240)]

PROGRAM = Path(__file__).with_name("nsys_program.py")
ROOT = PROGRAM.parents[2]
MARK = "SLIME_PROFILER_TEST_MARK"
#: Nsight Systems 2022.4 now and then leaves no report, or does not return.
TRIES = 3
ATTEMPT_S = 45
PUSH_POP, START_END, DOMAIN_CREATE = 59, 60, 75
RANGES = """
select coalesce(n.text, s.value) as name, n.eventType, n.start, n."end"
from NVTX_EVENTS n left join StringIds s on s.id = n.textId
where n.eventType in (59, 60) and n.domainId in (
  select d.domainId from NVTX_EVENTS d left join StringIds t on t.id = d.textId
  where d.eventType = 75 and coalesce(d.text, t.value) = 'slime')
order by n.start, n."end" desc
"""


def _carries(environ: Path, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in environ.read_bytes().split(b"\0")
    except OSError:  # it has ended, or is not ours
        return False


def _end_marked(mark: str) -> None:
    """End the processes that carry `mark`: nsys leaves an agent behind when it is cut short."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        if _carries(environ, mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(environ.parent.name), signal.SIGKILL)


def _try_profile(nsys: str, out: Path) -> tuple[Path | None, str]:
    """One attempt: the exported database, or ``None`` and what was said."""
    mark = uuid.uuid4().hex
    environment = {**os.environ, MARK: mark, "PYTHONPATH": str(ROOT), "TMPDIR": str(out)}
    report, database = out / "report.nsys-rep", out / "report.sqlite"
    profile = [
        nsys,
        "profile",
        "--trace=nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        f"--output={out / 'report'}",
    ]
    export = [nsys, "export", "--type=sqlite", f"--output={database}", str(report)]
    said = ""
    try:
        for command in ([*profile, sys.executable, str(PROGRAM), str(out / "runs")], export):
            result = subprocess.run(
                command,
                env=environment,
                cwd=out,
                capture_output=True,
                text=True,
                timeout=ATTEMPT_S,
                check=False,
            )
            said += f"{result.args}\nstatus {result.returncode}\n{result.stdout}\n{result.stderr}\n"
    except subprocess.TimeoutExpired as expired:
        said += f"{expired}\n{expired.stdout}\n{expired.stderr}\n"
    finally:
        _end_marked(mark)
    return (database if database.is_file() else None), said


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    nsys = shutil.which("nsys")
    if nsys is None:
        pytest.skip("Nsight Systems is not installed: install the package nsight-systems")
    said = []
    for _ in range(TRIES):
        found, words = _try_profile(nsys, tmp_path_factory.mktemp("nsys"))
        if found is not None:
            return found
        said.append(words)
    pytest.fail("\n".join(said))


def test_phases_are_nvtx_ranges_of_our_domain(database):
    with contextlib.closing(sqlite3.connect(database)) as connection:
        ranges = connection.execute(RANGES).fetchall()
    step = [("train_step", PUSH_POP), ("forward_backward", PUSH_POP), ("optimizer", PUSH_POP)]
    assert [(name, kind) for name, kind, _start, _end in ranges] == step * 3 + [("reward", START_END)] * 2
    for outer, first, second in zip(*[iter(ranges[:9])] * 3, strict=True):
        assert outer[2] <= first[2] <= first[3] <= second[2] <= second[3] <= outer[3]
    one, other = ranges[9:]
    assert other[2] < one[3], "the two tasks overlap"
