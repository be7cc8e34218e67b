"""A real TensorBoard, as a user starts it, asked over HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

START_S = 90


class Server(NamedTuple):
    """A TensorBoard: its address and what it has written."""

    url: str
    log: Path

    def ask(self, route: str, **query: Any) -> Any:
        """What a route answers: ``data/plugin/…``."""
        with urllib.request.urlopen(f"{self.url}{route}?{urlencode(query)}", timeout=60) as answer:
            return json.load(answer)

    def wait_for(self, ready: Callable[[Any], bool], route: str, **query: Any) -> Any:
        """The first answer that is `ready`; what is not there yet answers with an error."""
        until, answer = time.monotonic() + START_S, None
        while time.monotonic() < until:
            with contextlib.suppress(urllib.error.HTTPError):
                answer = self.ask(route, **query)
                if ready(answer):
                    return answer
            time.sleep(0.2)
        raise AssertionError(f"{route} {query} answers {answer}\n{self.log.read_text()}")


@contextlib.contextmanager
def run_tensorboard(log_folder: Path, scratch: Path, *options: str) -> Iterator[Server]:
    """TensorBoard on a free port of loopback; what it writes goes to `scratch`."""
    pytest.importorskip("tensorboard", exc_type=ImportError)
    log = scratch / "tensorboard.log"
    program = Path(sys.executable).with_name("tensorboard")
    environment = {**os.environ, "XDG_CACHE_HOME": str(scratch / "cache")}
    command = [str(program), "--logdir", str(log_folder), "--host", "127.0.0.1", "--port", "0", *options]
    with (
        log.open("w") as stream,
        subprocess.Popen(command, stdout=stream, stderr=stream, env=environment) as server,
    ):
        try:
            found = None
            until = time.monotonic() + START_S
            while found is None and server.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
                found = re.search(r"http://127\.0\.0\.1:\d+/", log.read_text())
            assert found is not None, log.read_text()
            yield Server(found[0], log)
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
