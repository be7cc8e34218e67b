"""Answers as TensorBoard's server sends them, each with the headers that every answer has."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from ._answers import ErrorAnswer

#: Bytes that are sent at a time; of a file no more are in memory.
_BLOCK: Final = 1 << 18
_HASH: Final = re.compile(r"'sha256-[A-Za-z0-9+/=]+'")
#: For whatever is no page: nothing in it may run, should somebody open it as one.
_NOTHING: Final = "default-src 'none'; frame-ancestors 'none'"
JSON: Final = "application/json"


class Response:
    """A status, headers and a body: a WSGI application itself, so that a route returns it."""

    def __init__(
        self,
        body: bytes | Iterable[bytes],
        kind: str,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> None:
        self.status = status
        self.body: Iterable[bytes] = _pieces(body) if isinstance(body, bytes) else body
        self.headers = {
            "Content-Type": kind,
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": _NOTHING,
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        if isinstance(body, bytes):
            self.headers["Content-Length"] = str(len(body))

    def __call__(self, _environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response(f"{self.status.value} {self.status.phrase}", list(self.headers.items()))
        return self.body


def _pieces(body: bytes) -> list[bytes] | Iterator[bytes]:
    """A large answer goes out piece by piece, so that the server never holds it twice."""
    if len(body) <= _BLOCK:
        return [body]
    return (body[at : at + _BLOCK] for at in range(0, len(body), _BLOCK))


def encode(value: msgspec.Struct) -> bytes:
    """JSON; bytes in names of files that are no UTF-8 are written out."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_written_out(msgspec.to_builtins(value)))


def _written_out(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_written_out(key): _written_out(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_written_out(each) for each in value]
    return value


def answer(value: msgspec.Struct) -> Response:
    """One of `_answers` as JSON."""
    return Response(encode(value), JSON)


def refuse(status: HTTPStatus, reason: str) -> Response:
    """An `ErrorAnswer`."""
    response = Response(encode(ErrorAnswer(error=reason)), JSON, status)
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        response.headers["Allow"] = "GET"
    return response


def send_file(path: Path, kind: str, headers: dict[str, str] | None = None) -> Response:
    """A file in small pieces. Raises `OSError` where it cannot be read, is a link or no regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        os.close(descriptor)
        raise OSError(None, "not a regular file", str(path))
    response = Response(_Blocks(os.fdopen(descriptor, "rb")), kind)
    response.headers.update({"Content-Length": str(about.st_size), **(headers or {})})
    return response


class _Blocks:
    """The content of a file, which is closed when the server is done with it, or the client gone."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        while block := self._stream.read(_BLOCK):
            yield block

    def close(self) -> None:
        """As WSGI has it called."""
        self._stream.close()


def page_policy(ui_policy: str) -> str:
    """The policy of the embedded Perfetto UI: its own inline scripts by hash, and nobody but this server.

    TensorBoard's validator knows no ``'wasm-unsafe-eval'``, nor ``blob:`` and ``data:`` for connections,
    and warns of them: hence the wider ``'unsafe-eval'``, which WebAssembly needs.
    """
    hashes = " ".join(_HASH.findall(ui_policy))
    return "; ".join(
        (
            "default-src 'self'",
            f"script-src 'self' 'unsafe-eval' {hashes}".rstrip(),
            "style-src 'self' 'unsafe-inline'",
            "font-src 'self' data:",
            "img-src 'self' data: blob:",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'self'",
        )
    )
