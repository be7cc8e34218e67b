"""A real TensorBoard with the tab in it, for tests, and what is asked of it over HTTP and in the browser."""

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
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from browser import Browser

PROGRAM = Path(__file__).with_name("viewers") / "tensorboard_ui.mjs"
_TAB = "slime_rl_timeline"
_START_S = 120
#: What the Perfetto UI itself says where its makers' servers and a native trace_processor are out of reach,
#: its other warnings, and a warning of TensorBoard's own page.
_NOISE = re.compile(
    r"is_internal_user|127\.0\.0\.1:9001|navigate-to|^warning: .*(/perfetto/|Three\.js)", re.DOTALL
)


class Server(NamedTuple):
    """A TensorBoard: its address, what it has written, its process."""

    url: str
    log: Path
    pid: int

    def ask(self, route: str, *, plugin: str = _TAB, **query: Any) -> Any:
        """What a route of the tab, or of another plugin, answers."""
        with self.open(route, plugin=plugin, **query) as answer:
            return json.load(answer)

    def open(self, route: str, *, plugin: str = _TAB, **query: Any) -> Any:
        """The answer of a route, to be read piece by piece."""
        address = f"{self.url}data/plugin/{plugin}/{route}?{urlencode(query)}"
        return urllib.request.urlopen(address, timeout=300)

    def wait_for(self, ready: Callable[[Any], bool], route: str, *, plugin: str, **query: Any) -> Any:
        """The first answer that is `ready`; what is not there yet answers with an error."""
        until, answer = time.monotonic() + _START_S, None
        while time.monotonic() < until:
            with contextlib.suppress(urllib.error.HTTPError):
                answer = self.ask(route, plugin=plugin, **query)
                if ready(answer):
                    return answer
            time.sleep(0.2)
        raise AssertionError(f"{plugin}/{route} {query} answers {answer}\n{self.log.read_text()}")


@contextlib.contextmanager
def run_tensorboard(
    log_folder: Path, scratch: Path, before: Sequence[str] = (), options: Sequence[str] = ()
) -> Iterator[Server]:
    """TensorBoard on a free port of loopback, as a user starts it, with words before its command and after.

    It looks for new event files every second.
    """
    pytest.importorskip("tensorboard", exc_type=ImportError)
    if _TAB not in entry_points(group="tensorboard_plugins").names:
        pytest.skip("the project is not installed, so TensorBoard does not know the tab: run `make install`")
    log = scratch / "tensorboard.log"
    program = Path(sys.executable).with_name("tensorboard")
    environment = {**os.environ, "XDG_CACHE_HOME": str(scratch / "cache")}
    command = [*before, str(program), "--logdir", str(log_folder), "--host", "127.0.0.1", "--port", "0"]
    command += ["--reload_interval", "1", *options]
    with (
        log.open("w") as stream,
        subprocess.Popen(command, stdout=stream, stderr=stream, env=environment) as server,
    ):
        try:
            found = None
            until = time.monotonic() + _START_S
            while found is None and server.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
                found = re.search(r"http://127\.0\.0\.1:\d+/", log.read_text())
            assert found is not None, log.read_text()
            yield Server(found[0], log, server.pid)
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()


def open_tab(browser: Browser, server: Server, *, dark: bool = False, search: str = "", **link: Any) -> None:
    """The tab, at a deep link; `search` are words of TensorBoard's own in the address."""
    words = "".join(f"&p.slime_rl_timeline.{name}={value}" for name, value in link.items())
    browser.do("open", url=server.url, link=words, dark=dark, search=search)


def check_quiet(browser: Browser, server: Server) -> None:
    """Nobody complained: neither the pages on the console, nor TensorBoard's security validator."""
    assert [line for line in browser.do("console") if not _NOISE.search(line)] == []
    assert "In 3.0, this warning will become an error" not in server.log.read_text()
