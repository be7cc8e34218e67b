"""A merge that is ended in the middle: what was there stays, nothing else does."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from recordings import ROOT, environment
from traces import op, write_trace

#: Told when both workers have work; in `survey_trace` and `rewrite_trace`.
_PROGRAM = """
import sys, time
from pathlib import Path
from slime_profiler_plugin import cli
from slime_profiler_plugin.merge import _assemble

real = getattr(_assemble, sys.argv[1])
busy = Path(sys.argv[2])

def slow(task, advance):
    (busy / task.folder.name).touch()
    time.sleep(60)
    return real(task, advance)

setattr(_assemble, sys.argv[1], slow)
cli.main(sys.argv[3:])
"""


def group_of(leader):
    """Processes of the group of `leader` that are there."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("work", ["survey_trace", "rewrite_trace"])
@pytest.mark.parametrize(
    ("number", "to_all", "code"),
    [
        (signal.SIGINT, True, 1),
        (signal.SIGINT, False, 1),
        (signal.SIGTERM, False, 143),
        (signal.SIGTERM, True, 143),
    ],
)
def test_signal_in_the_middle_leaves_the_old_output_and_nothing_else(tmp_path, work, number, to_all, code):
    folder, busy = tmp_path / "out", tmp_path / "busy"
    busy.mkdir()
    folder.mkdir()
    out = folder / "merged.json.gz"
    out.write_bytes(b"the old one")
    paths = [
        write_trace(tmp_path / f"rank{n}.json", [op("x" * 100, at, 1) for at in range(20_000)])
        for n in range(2)
    ]
    program = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _PROGRAM,
            work,
            str(busy),
            "merge",
            *map(str, paths),
            "-o",
            str(out),
            "--jobs",
            "2",
        ],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while len(list(busy.iterdir())) < 2:
            assert program.poll() is None, program.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert len(group_of(program.pid)) == 3
        (os.killpg if to_all else os.kill)(program.pid, number)
        _, told = program.communicate(timeout=30)
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
    assert group_of(program.pid) == []
    assert program.returncode == code
    assert "Traceback" not in told
    assert [p.name for p in folder.iterdir()] == [out.name]
    assert out.read_bytes() == b"the old one"
