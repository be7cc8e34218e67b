"""What several folders of tests share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from perfetto import Perfetto, find_perfetto

from slime_profiler_plugin import timeline

ROOT = Path(__file__).resolve().parents[1]

# A shell starts programs in the background with Ctrl-C ignored, and what tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines differ in speed, so no example has a deadline. The gate draws the same examples each
# time: what new examples find belongs to whoever runs the tests, not to the change at the gate.
settings.register_profile("here", deadline=None)
settings.register_profile("gate", deadline=None, derandomize=True)
settings.load_profile("gate" if os.environ.get("CI") else "here")


@pytest.fixture(autouse=True)
def _timeline_off() -> Iterator[None]:
    """No test leaves this process recording."""
    yield
    timeline.stop()


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `integration/demo_session.py` tells of one whole demo over nccl, run once for all tests.

    Whoever uses it needs a timeout of 300 s.
    """
    return _run_session("demo_session.py", tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="session")
def demos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `integration/transports_session.py` tells of a small demo over each of the other transports.

    Whoever uses it needs a timeout of 300 s.
    """
    return _run_session("transports_session.py", tmp_path_factory.mktemp("demos"))


def _run_session(name: str, out: Path) -> dict[str, Any]:
    pytest.importorskip("torch")
    pytest.importorskip("ray")
    script = ROOT / "tests" / "integration" / name
    paths = [str(ROOT), str(script.parent), os.environ.get("PYTHONPATH", "")]
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("SLIME_", "RAY_"))}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    done = subprocess.run(
        [sys.executable, str(script), str(out)],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.fixture(scope="session")
def perfetto() -> Perfetto:
    """trace_processor under node; skips where it is not installed."""
    return find_perfetto()
