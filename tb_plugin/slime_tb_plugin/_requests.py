"""Which requests are answered at all, and what they ask for. Everything else is refused, saying why."""

from __future__ import annotations

import re
import socket
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from slime_profiler_plugin.schema import INITIAL

#: Bytes of a query string: the longest that the tab sends is far shorter.
_MOST_QUERY: Final = 1024
_LOOPBACK: Final = re.compile(r"(127(\.\d{1,3}){3}|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-f:.]+\])(:\d{1,5})?", re.IGNORECASE)
_PORT: Final = re.compile(r":\d{1,5}$")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class RefusedError(Exception):
    """A request that is not answered: the status, and why."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Hosts:
    """The names under which a browser may reach us: a page that was led here by another may read nothing.

    While TensorBoard is bound to loopback those are loopback's. Else they are addresses in numbers, this
    machine's own names, the name that TensorBoard was bound to, and those in `allowed`.
    """

    def __init__(self, bound: str | None, allowed: Collection[str], *, bind_all: bool) -> None:
        self.loopback = not bind_all and (bound is None or _is_loopback(bound))
        named = {*allowed, *([bound] if bound else []), socket.gethostname(), socket.getfqdn()}
        self._names = {name.lower().rstrip(".") for name in named if name}

    def allows(self, host: str) -> bool:
        """Whether a ``Host`` header names us."""
        if _LOOPBACK.fullmatch(host):
            return True
        if self.loopback:
            return False
        return _ADDRESS.fullmatch(host) is not None or _PORT.sub("", host).lower() in self._names


def _is_loopback(bound: str) -> bool:
    return _LOOPBACK.fullmatch(bound if ":" not in bound else f"[{bound}]") is not None


def check_request(environ: Mapping[str, Any], hosts: Hosts) -> None:
    """Raises `RefusedError` for what the tab itself cannot have asked for."""
    if environ.get("REQUEST_METHOD") != "GET":
        raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is answered.")
    host = str(environ.get("HTTP_HOST", ""))
    if not hosts.allows(host):
        raise RefusedError(
            HTTPStatus.MISDIRECTED_REQUEST,
            "This name of the server is not allowed. Open TensorBoard under localhost, or name it in "
            "SLIME_PROFILER_TB_HOSTS if TensorBoard serves other machines.",
        )
    origin = environ.get("HTTP_ORIGIN")
    if origin is not None and str(origin).lower().partition("://")[2] != host.lower():
        raise RefusedError(HTTPStatus.FORBIDDEN, "Other pages may not read this one.")
    if environ.get("HTTP_SEC_FETCH_SITE", "none") not in ("same-origin", "none"):
        raise RefusedError(HTTPStatus.FORBIDDEN, "Other pages may not read this one.")


def parse_query(query: str, allowed: Collection[str], required: Collection[str]) -> dict[str, str]:
    """The parameters of a query, each at most once.

    >>> parse_query("run=a%20b&attempt=0", {"run", "attempt"}, {"run"})
    {'run': 'a b', 'attempt': '0'}

    Raises `RefusedError` for any other parameter, a broken escape, and what is no UTF-8 or holds
    control characters.
    """
    if len(query) > _MOST_QUERY:
        raise RefusedError(HTTPStatus.REQUEST_URI_TOO_LONG, "The query is too long.")
    found: dict[str, str] = {}
    for part in query.split("&") if query else []:
        name, equals, raw = part.partition("=")
        if not equals or name not in allowed or name in found:
            told = ", ".join(sorted(allowed)) or "none"
            raise _bad(f"Parameters of this route are {told}, each once.")
        found[name] = _decode(raw)
    lacking = [name for name in required if name not in found]
    if lacking:
        raise _bad(f"The parameter {lacking[0]} is needed.")
    return found


def _decode(raw: str) -> str:
    if _ESCAPE.search(raw):
        raise _bad("A % is not followed by two hexadecimal digits.")
    try:
        text = unquote_to_bytes(raw.replace("+", " ")).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad("The query is not UTF-8.") from error
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise _bad("The query holds a control character.")
    return text


def parse_number(name: str, text: str) -> int:
    """The number of an attempt or a sync. Raises `RefusedError`."""
    if not _NUMBER.fullmatch(text):
        raise _bad(f"The parameter {name} is a number from 0 on.")
    return int(text)


def check_rollout(text: str) -> str:
    """A rollout id. Raises `RefusedError`."""
    if text != INITIAL and not _NUMBER.fullmatch(text):
        raise _bad("A rollout is a number from 0 on, or `initial`.")
    return text


def _bad(reason: str) -> RefusedError:
    return RefusedError(HTTPStatus.BAD_REQUEST, reason)
